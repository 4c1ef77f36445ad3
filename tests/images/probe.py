"""Runs inside a container, by the standard library alone, and prints as JSON what lies in it."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sysconfig

TOOLS = ["cc", "c++", "gcc", "g++", "clang", "make", "ld", "cargo", "rustc", "go", "javac", "git", "pip", "pip3", "uv"]
CACHES = ["/root/.cache", "/app/.cache", "/root/.ivy2", "/root/.m2", "/var/cache/apt/archives/partial", "/source"]
SECRETS = ["/etc/pip.conf", "/root/.netrc", "/root/.docker", "/root/.config/pip", "/run/secrets"]


def files(folder: str) -> list[str]:
    return sorted(
        os.path.relpath(os.path.join(parent, name), folder) for parent, _, names in os.walk(folder) for name in names
    )


def size(folder: str) -> int:
    # Status 1 says that a process ended while its folder in /proc was looked at.
    command = ["du", "-sb", "--one-file-system", folder]
    output = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return int(output.split()[0])


if __name__ == "__main__":
    packages = sysconfig.get_path("purelib")
    print(
        json.dumps(
            {
                "uid": os.getuid(),
                "distributions": {
                    found.metadata["Name"]: found.version for found in importlib.metadata.distributions(path=[packages])
                },
                "tools": [tool for tool in TOOLS if shutil.which(tool)],
                "caches": [file for folder in CACHES for file in files(folder)],
                "secrets": [path for path in SECRETS if os.path.isfile(path) or files(path)],
                "app": files("/app"),
                "writable": [folder for folder in ("/app", packages) if os.access(folder, os.W_OK)],
                "packages_bytes": size(packages),
                "bytes": size("/"),
            }
        )
    )
