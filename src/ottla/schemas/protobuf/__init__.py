"""Protobuf schemas: a parser and a printer of .proto files around file descriptors.

Start reading at `schema.py`. Text and base64 descriptors meet in one ``FileDescriptorProto``; the
comparison follows Confluent's rules and names of differences.
"""
