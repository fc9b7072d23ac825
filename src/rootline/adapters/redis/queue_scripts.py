"""The steps of the task queue, each one script: all of it happens in Redis, or none of it.

Owns: the scripts, and the form of what they keep. Does not own: when they run (`task_queue`).
Invariants: every script takes the five keys of `LakeKeys` in one order (tasks, queued, leases, done, dead); what is not
in the form that these scripts write is passed over, so that garbage holds no table up; times are the server's; a lease
or a mark that claims to be from the future counts as none.

A task is an entry of the stream `tasks` with the fields kind, table, version; `queued` names its entry, by "kind
table". A lease is "until-ms token"; `done` is "version at-ms"; `dead` is "version attempts at-ms".
"""

from __future__ import annotations

from typing import Final

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
local function standing(like)
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
if leased(like, lease_ms) or standing(like) then return 'already_there' end
if redis.call('XLEN', KEYS[1]) >= tasks_max then return 'full' end
add(kind, name, version)
return 'queued'
"""
)
"""ARGV: kind, table, version, tasks_max, lease_ms, done_ms, dead_ms. The name of an `Offer`."""

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
"""ARGV: token, lease_ms, attempts_max. Entry, kind, table, version (empty: none), and four counts."""

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
"""ARGV: token, lease_ms, entry, "kind table". A lease that Redis lost is there again."""

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
if ending == 'cut_off' and not standing(like) then add(kind, name, version) end
keep()
return 1
"""
)
"""ARGV: token, entry, kind, table, version, the name of an `Ending`. 0: it is another worker's by now.

What follows a look at a root is offered with it, so a failure makes that look due again.
"""

WAITING: Final = (
    _CLOCK
    + """
local lease_ms, found = tonumber(ARGV[1]), {}
if redis.call('HLEN', KEYS[2]) > 100000 then return {redis.call('HLEN', KEYS[5])} end
for _, like in ipairs(redis.call('HKEYS', KEYS[2])) do
  local kind = string.match(like, '^(%l+) ')
  if kind and not leased(like, lease_ms) and standing(like) then found[kind] = (found[kind] or 0) + 1 end
end
local answer = {redis.call('HLEN', KEYS[5])}
for kind, count in pairs(found) do
  answer[#answer + 1] = kind
  answer[#answer + 1] = count
end
return answer
"""
)
"""ARGV: lease_ms. How many are dead; then kind, count, kind, count …"""

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
""""kind table", value, and so on."""
