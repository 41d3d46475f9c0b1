"""An ONNX model of one product as bytes, in protobuf's own encoding: field, length, content."""

from __future__ import annotations

FLOAT = 1
"""TensorProto.DataType.FLOAT."""
VERSION, OPSET = 8, 13


def varint(value: int) -> bytes:
    """
    >>> varint(300)
    b'\\xac\\x02'
    """
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def text(field: int, content: "bytes | str") -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(raw)) + raw


def tensor(name: str, *shape: int) -> bytes:
    """ValueInfoProto of a float32 tensor."""
    dimensions = b"".join(text(1, number(1, size)) for size in shape)
    return text(1, name) + text(2, text(1, number(1, FLOAT) + text(2, dimensions)))


def product_model(rows: int, inner: int, columns: int) -> bytes:
    """ModelProto of `c = MatMul(a, b)`. Source: onnx.proto of ONNX 1.14."""
    node = text(1, "a") + text(1, "b") + text(2, "c") + text(4, "MatMul")
    graph = text(1, node) + text(2, "product")
    graph += text(11, tensor("a", rows, inner)) + text(11, tensor("b", inner, columns))
    graph += text(12, tensor("c", rows, columns))
    return number(1, VERSION) + text(7, graph) + text(8, number(2, OPSET))
