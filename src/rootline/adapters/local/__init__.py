"""Tables in a folder: the object store on local files, and the lock of an embedded lake."""
