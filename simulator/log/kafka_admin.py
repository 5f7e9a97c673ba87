"""Topics on Kafka: made with the settings that a replay of years-old event time needs, checked where they
exist.

A broker that keeps records by time deletes a replayed lifelog at its next look (its stamps are years old),
and one that bounds stamps refuses it. So topics are created to keep everything and take every stamp; one that
exists with other settings raises a TopicError that names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import aiokafka.errors as kafka_errors
import anyio
from aiokafka.admin import NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.metadata import MetadataRequest

from simulator.errors import LogError, TopicError
from simulator.log.kafka_client import UNKNOWN_FOR_S, log_error, may_pass, retried
from simulator.log.kafka_config import KafkaConfig
from simulator.log.protocol import TopicPartition

MAX_RECORD_BYTES = 8 << 20
"""The largest record, with its key and headers, that topics are made for."""
MAX_STAMP_DISTANCE_MS = (1 << 63) - 1

SETTINGS: dict[str, str] = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(MAX_STAMP_DISTANCE_MS),
    "message.timestamp.after.max.ms": str(MAX_STAMP_DISTANCE_MS),
    "max.message.bytes": str(MAX_RECORD_BYTES + 4096),
}
"""What topics are created with."""

# An old lifelog's stamps lie decades in the past; nobody's lie beyond this. (Newer brokers default to one
# hour for `after`, which a lifelog with invented dates can break.)
_WIDE_MS = 100 * 366 * 86_400_000
_AT_LEAST = {
    "message.timestamp.before.max.ms": _WIDE_MS,
    "message.timestamp.after.max.ms": _WIDE_MS,
    "max.message.bytes": 1 << 20,
}
_LEGAL_IN_NAMES = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_APPEARS_WITHIN_S = 15.0


class Committed(NamedTuple):
    """A group's committed offset, with the token that was committed with it."""

    offset: int
    token: str


class KafkaAdmin:
    """Topics and committed offsets of one log. Names are the log's own; `prefix` is added and taken off
    here."""

    def __init__(self, config: KafkaConfig, client: Any) -> None:
        self._config = config
        self._client = client
        self._known: dict[str, int] = {}
        self._coordinators: dict[str, int] = {}
        self._expected: dict[str, dict[TopicPartition, str]] = {}

    async def topics(self) -> dict[str, int]:
        """Topic → number of partitions, of all that are ready for use."""
        prefix = self._config.prefix
        described = await retried(self._config, "list the topics", self._client.describe_topics)
        found = {}
        for topic in described:
            name = topic["topic"]
            # A partition without a leader is not ready: its topic has just been created, or is being deleted
            leaders = [partition["leader"] for partition in topic["partitions"]]
            if not topic["is_internal"] and name.startswith(prefix) and leaders and not topic["error_code"]:
                found[name[len(prefix) :]] = len(leaders)
        self._known |= found  # one that has just started may not know all that another knew
        return dict(sorted(found.items()))

    async def exists(self, topic: str) -> bool:
        """Whether a topic is there and ready for use. A broker leaves topics that this user may not describe out
        of a list; asked for one by name, it says so: then this raises LogError."""
        check_name(topic)
        name = self._config.prefix + topic
        return await retried(self._config, f"look for topic {name!r}", lambda: self._is_there(name))

    async def _is_there(self, name: str) -> bool:
        """Whether a broker knows a topic: one alone may not know yet what has just been made. All are asked at once;
        one that says nothing is not waited for long. Raises where none answers."""
        said: list[dict[str, Any]] = []
        failed: Exception = kafka_errors.NodeNotReadyError("no broker answers")
        async with anyio.create_task_group() as tasks:

            async def ask(broker: int) -> None:
                nonlocal failed
                request = MetadataRequest([name], allow_auto_topic_creation=False)
                try:
                    with anyio.move_on_after(UNKNOWN_FOR_S):
                        answer = await self._client._send_request(request, broker)
                        said.extend(answer.to_object()["topics"])
                except kafka_errors.KafkaError as error:
                    failed = error
                if any(_is_known(topic) for topic in said):
                    tasks.cancel_scope.cancel()

            for broker in self._client._client.cluster.brokers():
                tasks.start_soon(ask, broker.nodeId)
        if any(_is_known(topic) for topic in said):
            return True
        if any(topic["error_code"] == kafka_errors.TopicAuthorizationFailedError.errno for topic in said):
            refusal = kafka_errors.TopicAuthorizationFailedError(name)
            raise log_error(self._config, f"read topic {name!r}", refusal)
        if not said:
            raise failed
        return False

    async def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """Numbers of partitions of topics. One that another process has just created may be unknown to the
        broker asked: it gets a moment. Raises TopicError for what is missing then."""
        wanted = list(dict.fromkeys(topics))
        if not all(topic in self._known for topic in wanted):
            unknown_since_s: float | None = None
            while True:
                known = await self.topics()
                missing = [topic for topic in wanted if topic not in self._known]
                if not missing:
                    break
                unknown_since_s = unknown_since_s or anyio.current_time()
                if anyio.current_time() - unknown_since_s > UNKNOWN_FOR_S:
                    there = ", ".join(known) or "none"
                    await self.exists(missing[0])  # raises where it is there and hidden from this user
                    raise TopicError(
                        f"there is no topic {missing[0]!r} on Kafka at {self._config}: check the run's name and "
                        f"the prefix; there is: {there}"
                    )
                await anyio.sleep(0.1)
        return {topic: self._known[topic] for topic in wanted}

    def known_partitions(self, topic: str) -> int:
        """The number of partitions of a topic that `partitions` has found."""
        return self._known[topic]

    async def create_topics(self, topics: Mapping[str, int]) -> None:
        """Make what is missing, check what exists, and wait until all of it can be used."""
        for topic, partitions in topics.items():
            check_name(topic)
            check_name(self._config.prefix + topic)
            if partitions < 1:
                raise TopicError(f"topic {topic!r} needs at least one partition, not {partitions}")
        there = await self.topics()
        existing = [topic for topic in topics if topic in there]
        for topic in existing:
            if there[topic] != topics[topic]:
                raise self._other_partitions(topic, there[topic], topics[topic])
        await self._check_settings(existing)
        missing = {topic: partitions for topic, partitions in topics.items() if topic not in there}
        if not missing:
            return
        await retried(self._config, "create topics", lambda: self._create(missing))
        await self._wait_until_there(missing)
        await self._check_settings(missing)  # another process may have been first, with other settings

    async def _create(self, topics: Mapping[str, int]) -> None:
        # An empty `replica_assignments`, unlike None, lets aiokafka send -1: the broker's own replication
        new = [
            NewTopic(
                name=self._config.prefix + topic,
                num_partitions=partitions,
                replication_factor=self._config.replication or -1,
                replica_assignments=None if self._config.replication else {},
                topic_configs=SETTINGS,
            )
            for topic, partitions in topics.items()
        ]
        await self._find_controller()
        response = await self._client.create_topics(new, timeout_ms=self._config.timeout_ms)
        for name, code, *text in response.topic_errors:
            error = kafka_errors.for_code(code)
            if error in (kafka_errors.NoError, kafka_errors.TopicAlreadyExistsError):
                continue
            described = error(*(part for part in text if part))
            if may_pass(described):
                raise described
            if isinstance(described, kafka_errors.InvalidReplicationFactorError):
                raise kafka_errors.InvalidReplicationFactorError(f"topic {name!r}: {described}")
            raise log_error(self._config, f"create topic {name!r}", described) from described

    async def _find_controller(self) -> None:
        """Know who makes topics, and reach it. Of one that is not there any more, aiokafka waits for the return, and
        does not ask who has come in its place; where none is named, it breaks."""
        client = self._client._client
        if client.cluster.controller is None:
            await client.force_metadata_update()
        controller = client.cluster.controller
        if controller is None or not await client.ready(controller.nodeId):
            raise kafka_errors.NodeNotReadyError("no broker can be reached that makes topics")

    async def _wait_until_there(self, topics: Mapping[str, int]) -> None:
        deadline_s = anyio.current_time() + self._config.timeout_s
        while True:
            there = await self._ready()
            missing = [topic for topic in topics if there.get(topic, 0) < topics[topic]]
            if not missing:
                break
            if anyio.current_time() > deadline_s:
                raise LogError(
                    f"Kafka at {self._config} created topic {missing[0]!r} but shows no leader for it after "
                    f"{self._config.timeout_s:g} s: check that all brokers run, and start again"
                )
            await anyio.sleep(0.02)
        await self.topics()
        for topic, partitions in topics.items():
            if self._known.get(topic, partitions) != partitions:
                raise self._other_partitions(topic, self._known[topic], partitions)

    def _other_partitions(self, topic: str, there: int, wanted: int) -> TopicError:
        return TopicError(
            f"topic {self._config.prefix + topic!r} on Kafka at {self._config} has {there} partition"
            f"{'s'[: there != 1]}, not {wanted}: it is another run's, or was made by hand. Delete the topic "
            "(kafka-topics.sh --delete), or write to topics of other names with ?prefix="
        )

    async def _ready(self) -> dict[str, int]:
        """Topic → number of partitions that have a leader."""
        described = await retried(self._config, "list the topics", self._client.describe_topics)
        skip = len(self._config.prefix)
        return {
            topic["topic"][skip:]: sum(partition["leader"] >= 0 for partition in topic["partitions"])
            for topic in described
            if topic["topic"].startswith(self._config.prefix)
        }

    async def _check_settings(self, topics: Iterable[str]) -> None:
        resources = [
            ConfigResource(ConfigResourceType.TOPIC, self._config.prefix + topic, dict.fromkeys(SETTINGS))
            for topic in topics
        ]
        if not resources:
            return

        async def attempt() -> dict[str, dict[str, str | None]]:
            found: dict[str, dict[str, str | None]] = {}
            for response in await self._client.describe_configs(resources):
                for code, text, _, name, entries in response.resources:
                    if code:
                        raise kafka_errors.for_code(code)(f"topic {name!r}: {text}")
                    found[name] = {entry[0]: entry[1] for entry in entries}
            return found

        for name, settings in (await retried(self._config, "read the topics' settings", attempt)).items():
            check_settings(name[len(self._config.prefix) :], settings)

    # --- groups ---------------------------------------------------------------------------------------------

    def expect(self, group: str, tokens: Mapping[TopicPartition, str]) -> None:
        """A transaction with these tokens has taken place; `committed` is to show it."""
        self._expected.setdefault(group, {}).update(tokens)

    async def committed(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        """What a group has committed; partitions without a commit are left out. Kafka shows a transaction's
        offsets a moment after it says that it is done: this waits for those of this log."""
        wanted = list(partitions)
        deadline_s = anyio.current_time() + _APPEARS_WITHIN_S
        while True:
            found = await self._committed(group, wanted) if wanted else {}
            expected = self._expected.get(group, {})
            late = [tp for tp in wanted if tp in expected and _token(found, tp) < expected[tp]]
            if not late or anyio.current_time() > deadline_s:
                for tp in wanted:
                    expected.pop(tp, None)
                return found
            await anyio.sleep(0.005)

    async def _committed(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        prefix = self._config.prefix
        wanted: dict[str, list[int]] = {}
        for tp in partitions:
            wanted.setdefault(prefix + tp.topic, []).append(tp.partition)
        request = OffsetFetchRequest(prefix + group, list(wanted.items()))

        async def attempt() -> Any:
            coordinator = self._coordinators.get(group)
            if coordinator is None:
                coordinator = self._coordinators[group] = await self._client.find_coordinator(prefix + group)
            try:
                # Not aiokafka's `list_consumer_group_offsets`: that takes the refusal of a broker that does not
                # coordinate the group, any more or yet, for "nothing is committed"
                return _checked(await self._client._send_request(request, coordinator))
            except BaseException:
                self._coordinators.pop(group, None)
                raise

        topics = await retried(self._config, f"read the offsets of group {group!r}", attempt)
        return {
            TopicPartition(topic[len(prefix) :], partition): Committed(offset, token or "")
            for topic, found in topics
            for partition, offset, token, _ in found
            if offset >= 0
        }


def _is_known(topic: Mapping[str, Any]) -> bool:
    """Whether a broker's metadata say that it knows a topic."""
    return not topic["error_code"] and bool(topic["partitions"])


def _checked(response: Any) -> Any:
    """The offsets in an answer, by topic. Raises what the broker refused them for."""
    codes = [response.error_code, *(partition[3] for _, found in response.topics for partition in found)]
    for error in map(kafka_errors.for_code, codes):
        if error is not kafka_errors.NoError:
            raise error()
    return response.topics


def _token(found: Mapping[TopicPartition, Committed], tp: TopicPartition) -> str:
    """Tokens begin with their time: of two, the later is the greater."""
    return found[tp].token if tp in found else ""


def check_name(name: str) -> None:
    """Raises TopicError for what Kafka would not take as a topic's name."""
    if not name or len(name) > 249 or name in (".", "..") or not _LEGAL_IN_NAMES.issuperset(name):
        raise TopicError(f"{name!r} is no topic name: 1 to 249 letters, digits, '.', '_' and '-'")


def check_settings(topic: str, found: Mapping[str, str | None]) -> None:
    """Raises TopicError if a topic's settings would lose or refuse a replayed lifelog. Settings that the
    broker does not know (it is older) are left out of `found`."""
    for name, needed in SETTINGS.items():
        value = found.get(name)
        if value is None:
            continue
        fits = int(value) >= _AT_LEAST[name] if name in _AT_LEAST else value == needed
        if not fits:
            least = f"at least {_AT_LEAST[name]}" if name in _AT_LEAST else needed
            raise TopicError(
                f"topic {topic!r} exists with {name}={value}, and a replay needs {least}: "
                f"set it with kafka-configs.sh --alter, delete the topic, or write to topics of other names with "
                "?prefix="
            )
