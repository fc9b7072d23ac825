"""The task queue of all workers of a lake: a Redis stream with a consumer group.

Owns: the scripts and the format of their values, the calls, the tasks that this process runs. Does not own: the
behaviour without Redis (`open_redis`), the meaning of tasks.
Invariants: Those of `rootline.ports.task_queue`. Each step is one script, which Redis carries out entirely or not at
all. A task that was not finished is claimed by another worker once its own worker has not renewed it for `lease_s`. A
call whose answer is lost costs at worst a task that is done twice or later, never a table that is no longer maintained.
A task that cannot be read is dropped and counted. Times are the server's. A lease or a mark with a time in the future
is ignored.

Every script takes the five keys of `LakeKeys` in one order (tasks, queued, leases, done, dead). A task is an entry of
the stream `tasks` with the fields kind, table, version. `queued` maps "kind table" to its entry. A lease is
"until-ms token", `done` is "version at-ms", `dead` is "version attempts at-ms". Values of any other format are ignored,
so that corrupt data blocks no table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from typing_extensions import override

from rootline.adapters.redis_calls import LakeKeys, RedisCalls
from rootline.ports.task_queue import OFFERED_AGAIN_S, DeadTask, DeadTasks, Ending, Offer, Task, TaskKind, TaskQueue
from rootline.schemas.errors import Invalid, Unavailable
from rootline.schemas.identifiers import TableName, Version, table_name
from rootline.schemas.object_keys import MAX_VERSION

_CLOCK: Final = """
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local function keep() for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, 86400000 * 7) end end
local function leased(like, lease_ms)
  local found = redis.call('HGET', KEYS[3], like)
  local expiry, owner = string.match(found or '', '^(%d+) (%S+)$')
  expiry = tonumber(expiry)
  if expiry and expiry > now and expiry <= now + lease_ms then return owner end
  return nil
end
local function queued_entry(like)
  local id = redis.call('HGET', KEYS[2], like)
  if not id or not string.match(id, '^%d+%-%d+$') then return nil end
  local found = redis.pcall('XRANGE', KEYS[1], id, id)
  if found.err or #found == 0 then return nil end
  return id
end
local function forget(id, like)
  redis.pcall('XACK', KEYS[1], 'workers', id)
  redis.call('XDEL', KEYS[1], id)
  if like and redis.call('HGET', KEYS[2], like) == id then redis.call('HDEL', KEYS[2], like) end
end
local function add(kind, name, version)
  local id = redis.call('XADD', KEYS[1], '*', 'kind', kind, 'table', name, 'version', version)
  redis.call('HSET', KEYS[2], kind .. ' ' .. name, id)
  keep()
end
"""

OFFER: Final = (
    _CLOCK
    + """
local kind, name, version = ARGV[1], ARGV[2], ARGV[3]
local tasks_max, lease_ms, done_ms, dead_ms = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local like = kind .. ' ' .. name
local dead_at = tonumber(string.match(redis.call('HGET', KEYS[5], like) or '', '^%d+ %d+ (%d+)$'))
if dead_at and dead_at <= now and now - dead_at < dead_ms then return 'given_up' end
redis.call('HDEL', KEYS[5], like)
local done, done_at = string.match(redis.call('HGET', KEYS[4], like) or '', '^(%d+) (%d+)$')
done_at = tonumber(done_at)
if done_at and done_at <= now and now - done_at < done_ms and done == version then return 'done' end
if leased(like, lease_ms) or queued_entry(like) then return 'already_there' end
if redis.call('XLEN', KEYS[1]) >= tasks_max then return 'full' end
add(kind, name, version)
return 'queued'
"""
)
"""ARGV: kind, table, version, tasks_max, lease_ms, done_ms, dead_ms. Returns the value of an `Offer`."""

TAKE: Final = (
    _CLOCK
    + """
local token, lease_ms, attempts_max = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local claimed, dead, doubled, unreadable = 0, 0, 0, 0
redis.pcall('XGROUP', 'CREATE', KEYS[1], 'workers', '0', 'MKSTREAM')
local from = '0-0'
for _ = 1, 16 do
  local was_claimed = false
  local entry
  if from then
    local answer = redis.call('XAUTOCLAIM', KEYS[1], 'workers', token, lease_ms, from, 'COUNT', 1)
    entry = answer[2][1]
    was_claimed = entry and true or false
    from = answer[1] ~= '0-0' and answer[1] or nil
  end
  if not entry and not from then
    local answer = redis.call('XREADGROUP', 'GROUP', 'workers', token, 'COUNT', 1, 'STREAMS', KEYS[1], '>')
    entry = answer and answer[1] and answer[1][2][1]
    if not entry then break end
  end
  if entry then
    local id, field = entry[1], entry[2]
    local is_ours = field and #field == 6 and field[1] == 'kind' and field[3] == 'table' and field[5] == 'version'
      and #field[2] <= 32 and #field[4] <= 512 and #field[6] <= 19
    if not is_ours then
      unreadable = unreadable + 1
      forget(id, nil)
    else
      local like = field[2] .. ' ' .. field[4]
      local pending = redis.call('XPENDING', KEYS[1], 'workers', id, id, 1)
      local attempts = pending[1] and pending[1][4] or 1
      if leased(like, lease_ms) then
        doubled = doubled + 1
        forget(id, like)
      elseif attempts > attempts_max then
        dead = dead + 1
        redis.call('HSET', KEYS[5], like, field[6] .. ' ' .. (attempts - 1) .. ' ' .. now)
        forget(id, like)
      else
        if was_claimed then claimed = claimed + 1 end
        redis.call('HSET', KEYS[3], like, string.format('%d', now + lease_ms) .. ' ' .. token)
        redis.call('HSET', KEYS[2], like, id)
        keep()
        return {id, field[2], field[4], field[6], claimed, dead, doubled, unreadable}
      end
    end
  end
end
return {'', '', '', '', claimed, dead, doubled, unreadable}
"""
)
"""ARGV: token, lease_ms, attempts_max. Returns entry, kind, table, version (empty without a task), and four counts."""

RENEW: Final = (
    _CLOCK
    + """
local token, lease_ms, id, like = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local owner = leased(like, lease_ms)
if owner and owner ~= token then return 0 end
redis.call('HSET', KEYS[3], like, string.format('%d', now + lease_ms) .. ' ' .. token)
redis.pcall('XCLAIM', KEYS[1], 'workers', token, 0, id, 'JUSTID')
keep()
return 1
"""
)
"""ARGV: token, lease_ms, entry, "kind table". Restores a lease that Redis lost. Returns 0 if another worker has it."""

FINISH: Final = (
    _CLOCK
    + """
local token, id, kind, name, version, ending = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local like = kind .. ' ' .. name
local _, owner = string.match(redis.call('HGET', KEYS[3], like) or '', '^(%d+) (%S+)$')
if owner and owner ~= token then return 0 end
redis.call('HDEL', KEYS[3], like)
forget(id, like)
if ending == 'failed' then redis.call('HDEL', KEYS[4], 'root ' .. name) end
if ending == 'done' and kind == 'root' then
  redis.call('HSET', KEYS[4], like, version .. ' ' .. string.format('%d', now))
end
if ending == 'cut_off' and not queued_entry(like) then add(kind, name, version) end
keep()
return 1
"""
)
"""ARGV: token, entry, kind, table, version, the value of an `Ending`. Returns 0 if another worker has claimed it.

The check of a root offers the table's other tasks. So a failed task of any kind makes the check of the root due.
"""

WAITING: Final = (
    _CLOCK
    + """
local lease_ms, found = tonumber(ARGV[1]), {}
if redis.call('HLEN', KEYS[2]) > 100000 then return {redis.call('HLEN', KEYS[5])} end
for _, like in ipairs(redis.call('HKEYS', KEYS[2])) do
  local kind = string.match(like, '^(%l+) ')
  if kind and not leased(like, lease_ms) and queued_entry(like) then found[kind] = (found[kind] or 0) + 1 end
end
local answer = {redis.call('HLEN', KEYS[5])}
for kind, count in pairs(found) do
  answer[#answer + 1] = kind
  answer[#answer + 1] = count
end
return answer
"""
)
"""ARGV: lease_ms. Returns the number of dead tasks, then kind, count, kind, count …"""

DEAD: Final = """
local answer, from = {}, '0'
for _ = 1, 100 do
  local found = redis.call('HSCAN', KEYS[5], from, 'COUNT', 100)
  for number = 1, #found[2], 2 do
    if #found[2][number] <= 600 and #found[2][number + 1] <= 100 then
      answer[#answer + 1] = found[2][number]
      answer[#answer + 1] = found[2][number + 1]
    end
  end
  from = found[1]
  if from == '0' then break end
end
return answer
"""
"""Returns "kind table", value, "kind table", value …"""


_USE: Final = "queue"
_DONE_MS: Final = int(OFFERED_AGAIN_S * 900)
"""A little shorter than the time after which an unchanged table is offered again."""
_POLL_S: Final = 0.25
_RENEWALS: Final = 3
_OUTCOMES: Final = ("claimed", "dead", "doubled", "unreadable")


class RedisTaskQueue(TaskQueue, DeadTasks):
    """The queue of one lake, with up to `tasks_max` queued and running tasks of all workers."""

    is_shared: bool = True

    def __init__(self, calls: RedisCalls, keys: LakeKeys, *, tasks_max: int) -> None:
        self._calls, self._tasks_max = calls, tasks_max
        self._keys = (keys.tasks, keys.queued, keys.leases, keys.done, keys.dead)
        self._token = calls.environment.fresh_id()
        self._lease_ms = int(calls.settings.lease_s * 1000)
        self._running: dict[Task, str] = {}

    @override
    async def offer(self, task: Task) -> Offer:
        limits = (self._tasks_max, self._lease_ms, _DONE_MS, int(self._calls.settings.dead_task_s * 1000))
        answer = await self._run(OFFER, *_fields_of(task), *limits)
        try:
            return Offer(answer.decode() if isinstance(answer, bytes) else answer)
        except ValueError:
            raise _unexpected(answer) from None

    @override
    async def take(self, *, wait_s: float) -> Task | None:
        """Take the oldest task, or one that its worker has not renewed. Polls a few times a second."""
        now_s = self._calls.environment.monotonic_s
        end_s = now_s() + wait_s
        while True:
            task, has_dropped = await self._taken()
            rest_s = end_s - now_s()
            if task is not None or (rest_s <= 0 and not has_dropped):
                return task
            if not has_dropped:
                await asyncio.sleep(min(_POLL_S, rest_s))

    @override
    async def finish(self, task: Task, ending: Ending = Ending.DONE) -> None:
        """End `task`. Without an answer of Redis, another worker runs the task again later."""
        entry = self._running.pop(task, None)
        if entry is None:
            return
        try:
            await self._run(FINISH, self._token, entry, *_fields_of(task), ending.value)
        except Unavailable:
            return

    @override
    async def renew(self) -> float:
        for task, entry in list(self._running.items()):
            if self._running.get(task) == entry:  # it may have ended meanwhile
                await self._run(RENEW, self._token, self._lease_ms, entry, _like(task.kind, task.table))
        return self._lease_ms / 1000 / _RENEWALS

    @override
    async def waiting(self) -> Mapping[TaskKind, int]:
        answer = await self._run(WAITING, self._lease_ms)
        if not isinstance(answer, list) or not answer:
            raise _unexpected(answer)
        self._calls.metrics.dead.set(answer[0])
        counts = {name.decode(errors="replace"): count for name, count in zip(answer[1::2], answer[2::2], strict=True)}
        return {kind: counts.get(kind.value, 0) for kind in TaskKind}

    @override
    async def close(self) -> None:
        """Do nothing, because `RedisCalls` owns the connections."""

    @override
    async def listed(self) -> Sequence[DeadTask]:
        answer = await self._run(DEAD)
        if not isinstance(answer, list):
            raise _unexpected(answer)
        found = []
        for like, value in zip(answer[::2], answer[1::2], strict=True):
            try:
                kind, _, table = like.decode().partition(" ")
                version, attempts, since_ms = value.decode().split(" ")
                found.append(DeadTask(_task(kind, table, version), int(attempts), int(since_ms)))
            except (ValueError, Invalid):
                continue  # no worker wrote it
        return sorted(found, key=lambda dead: (dead.since_ms, dead.task.table, dead.task.kind))

    @override
    async def retry(self, dead: DeadTask) -> Offer:
        await self.drop(dead.task.kind, dead.task.table)
        return await self.offer(dead.task)

    @override
    async def drop(self, kind: TaskKind, table: TableName) -> bool:
        return await self._calls.send(_USE, "HDEL", self._keys[4], _like(kind, table)) == 1

    async def _taken(self) -> tuple[Task | None, bool]:
        """Take a task. Returns also whether entries were dropped, so that more may be available now."""
        answer = await self._run(TAKE, self._token, self._lease_ms, self._calls.settings.attempts_max)
        if not isinstance(answer, list) or len(answer) != 8:
            raise _unexpected(answer)
        for outcome, count in zip(_OUTCOMES, answer[4:], strict=True):
            self._calls.metrics.tasks.labels(outcome).inc(count)
        entry, kind, table, version = (part.decode(errors="replace") for part in answer[:4])
        if not entry:
            return None, any(answer[5:])
        try:
            task = _task(kind, table, version)
        except (ValueError, Invalid):
            self._calls.metrics.tasks.labels("unreadable").inc()
            await self._run(FINISH, self._token, entry, *answer[1:4], Ending.FAILED.value)
            return None, True
        self._running[task] = entry
        return task, False

    async def _run(self, script: str, *arguments: str | int | bytes) -> object:
        return await self._calls.send(_USE, "EVAL", script, len(self._keys), *self._keys, *arguments)


def _fields_of(task: Task) -> tuple[str, str, int]:
    return task.kind.value, task.table, task.noticed_version


def _like(kind: TaskKind, table: TableName) -> str:
    return f"{kind.value} {table}"


def _task(kind: str, table: str, version: str) -> Task:
    """Parse a task. Raises `ValueError` or `Invalid` for fields that no worker writes."""
    if not (version.isascii() and version.isdigit() and len(version) <= 19 and int(version) <= MAX_VERSION):
        raise ValueError(version)
    return Task(TaskKind(kind), table_name(table), Version(int(version)))


def _unexpected(answer: object) -> Unavailable:
    return Unavailable(
        "redis-unavailable",
        f"Redis answered {str(answer)[:100]!r} to a script. Check that it is Redis or Valkey",
    )
