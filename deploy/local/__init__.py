"""The local stack: broker, registry and S3 server as processes of this machine, and `headrace up` around them."""
