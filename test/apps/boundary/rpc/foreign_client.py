"""A client of the boundary in another language, with nothing but the code that is generated from the proto file."""

import hashlib
import json
import os
import sys

import grpc
from tallyman.boundary.v1 import boundary_pb2 as pb
from tallyman.boundary.v1 import boundary_pb2_grpc as rpc

target, folder = sys.argv[1:3]


def read(name):
    with open(os.path.join(folder, name), "rb") as file:
        return file.read()


def client(role):
    credentials = grpc.ssl_channel_credentials(read("ca.pem"), read(f"{role}.key"), read(f"{role}.pem"))
    return rpc.BoundaryServiceStub(grpc.secure_channel(target, credentials))


def fact(message_id, value, **more):
    return pb.AppendFactRequest(
        envelope=pb.Envelope(
            message_id=message_id,
            from_zone="Plant A",
            to_zone="Enterprise",
            produced_at_unix_ms=1772755200000,
            correlation_id="order-1",
            labels={"line": "4"},
        ),
        fact=pb.Fact(
            subject="work_order:WO-2026-001",
            predicate=more.get("predicate", "has_state"),
            object_json=json.dumps(value),
        ),
    )


producer, consumer = client("producer"), client("consumer")
answers = [producer.AppendFact(fact("python", {"a": 1, "b": 2})) for _ in range(2)]
# Another order of members, white space, another clock: the same fact.
answers.append(producer.AppendFact(fact("python", {"b": 2, "a": 1})))

conflict = None
try:
    producer.AppendFact(fact("python", {"a": 2}))
except grpc.RpcError as error:
    conflict = [error.code().name, error.details().split(":")[0]]

content = os.urandom(300_000)
digest = "sha256:" + hashlib.sha256(content).hexdigest()


def parts():
    yield pb.PutObjectRequest(header=pb.ObjectHeader(bucket="files", key="python.bin", digest=digest))
    for at in range(0, len(content), 65_536):
        yield pb.PutObjectRequest(data=content[at : at + 65_536])


stored = producer.PutObject(parts())
reference = {"bucket": "files", "key": "python.bin", "digest": stored.digest, "size": stored.size}
batch = producer.AppendFacts(
    pb.AppendFactsRequest(
        facts=[
            fact("python with file", reference),
            fact("python bad", 1, predicate="Not Snake"),
            fact("python last", 2.5),
        ]
    )
)
# A consumer reads only what a fact names.
returned = b"".join(part.data for part in consumer.GetObject(pb.GetObjectRequest(bucket="files", key="python.bin")))
found = producer.FindFact(pb.FindFactRequest(from_zone="plant-a", message_id="python"))
stream = pb.Stream(from_zone="plant-a", to_zone="enterprise")
fetched = consumer.FetchFacts(pb.FetchFactsRequest(stream=stream, consumer_name="erp", limit=10))
confirmed = consumer.ConfirmReceipt(
    pb.ConfirmReceiptRequest(stream=stream, consumer_name="erp", offset=fetched.facts[-1].offset)
)

print(
    json.dumps(
        {
            "offsets": [answer.offset for answer in answers],
            "existing": [answer.existing for answer in answers],
            "conflict": conflict,
            "object": {"size": stored.size, "equal": returned == content},
            "batch": [result.WhichOneof("result") for result in batch.results],
            "found": found.offset,
            "fetched": [each.fact.envelope.message_id for each in fetched.facts],
            "confirmed": confirmed.cursor_advanced_to,
        }
    )
)
