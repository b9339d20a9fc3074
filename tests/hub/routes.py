"""Which function answers which request to the loopback Hub."""

from . import changing, large_files, looking, xet

MODELS = r"/api/models/(?P<repo>[^/]+/[^/]+?)"
SPACES = r"/api/(?P<repo>spaces/[^/]+/[^/]+?)"
REVISION = r"(?P<revision>[^/]+)"
ROUTES = (
    ("GET", "/api/whoami-v2", looking.whoami),
    ("POST", "/api/repos/create", changing.create),
    ("POST", "/api/validate-yaml", changing.validate_yaml),
    ("GET", "/api/models", looking.list_models),
    ("GET", MODELS, looking.info),
    ("GET", f"{MODELS}/revision/{REVISION}", looking.info),
    ("GET", f"{MODELS}/tree/{REVISION}", looking.tree),
    ("GET", f"{MODELS}/refs", looking.refs),
    ("GET", f"{MODELS}/commits/{REVISION}", looking.commits),
    ("POST", f"{MODELS}/branch/{REVISION}", changing.branch),
    ("POST", f"{MODELS}/preupload/{REVISION}", changing.preupload),
    ("POST", f"{MODELS}/commit/{REVISION}", changing.commit),
    ("GET", f"{SPACES}/revision/{REVISION}", looking.info),
    ("POST", f"{SPACES}/preupload/{REVISION}", changing.preupload),
    ("POST", f"{SPACES}/commit/{REVISION}", changing.commit),
    ("GET", f"{MODELS}/xet-(?P<kind>read|write)-token/{REVISION}", xet.token),
    ("GET", f"{SPACES}/xet-(?P<kind>read|write)-token/{REVISION}", xet.token),
    ("POST", r"/(?P<repo>[^/]+/[^/]+)\.git/info/lfs/objects/batch", large_files.batch),
    ("POST", r"/(?P<repo>[^/]+/[^/]+)\.git/info/lfs/verify", large_files.verify),
    ("GET HEAD", rf"/(?P<repo>[^/]+/[^/]+)/resolve/{REVISION}/(?P<path>.+)", looking.resolve),
)
CONTENT_ROUTES = (
    ("GET HEAD", "/large/(?P<oid>[0-9a-f]{64})", large_files.download),
    ("PUT", "/upload/(?P<oid>[0-9a-f]{64})", large_files.upload),
    ("GET", "/v1/reconstructions/(?P<file>[0-9a-f]{64})", xet.reconstruction),
    ("GET", "/xorb/(?P<file>[0-9a-f]{64})", xet.block),
    ("POST", "/v1/xorbs/default/(?P<block>[0-9a-f]{64})", xet.upload_block),
    ("POST", "/v(?P<version>[12])/shards", xet.upload_shard),
)
