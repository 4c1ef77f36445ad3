"""`new_dimension`: a reference table that pipelines look up in."""

from __future__ import annotations

from deploy.new.files import NewFiles, rendered


def new_dimension(name: str, owner: str) -> NewFiles:
    """Its contract, with a key and one column more, and a first row."""
    return NewFiles(
        {
            f"contracts/dimensions/{name}.yaml": rendered("dimension.yaml", name=name, owner=owner),
            f"contracts/dimensions/{name}.csv": "id,name\n1,the first one\n",
        }
    )
