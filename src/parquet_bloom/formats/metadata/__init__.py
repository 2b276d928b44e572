"""FileMetaData: the footer, read and edited."""
