"""The compact protocol of Thrift."""
