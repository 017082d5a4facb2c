#include "csrc/core/observe/sanitizer/shadow.h"

#include <algorithm>

#include "support/program/program.h"

namespace torch_npu::sanitizer {
namespace {

constexpr size_t kMostFreed = 20'000;       // remembered, so that a use can be told from a wild address
constexpr size_t kMostAccesses = 200;       // of one tensor; the oldest that are surely over go first
constexpr int64_t kMostPoints = 4'000'000;  // of a copy, looked at one by one
constexpr uint64_t kNear = 64 * 1024;       // an access this far from a tensor is said to be of that tensor

template <class Map>
auto find_in(Map& map, npu_addr addr) -> decltype(&map.begin()->second) {
  auto after = map.upper_bound(addr);
  if (after == map.begin()) return nullptr;
  auto& storage = std::prev(after)->second;
  return addr < storage.end() ? &storage : nullptr;
}

Fault fault_of(Fault::Kind kind, const Touch& touch, Run bytes, const Storage* storage) {
  Fault fault;
  fault.kind = kind;
  fault.operand = touch.operand;
  fault.write = touch.write;
  fault.touched = {touch.bytes.begin(), touch.bytes.end()};
  fault.bytes = bytes;
  if (storage) {
    fault.begin = storage->whole.begin;
    fault.size = storage->whole.size();
    fault.allocated = storage->allocated;
    fault.freed = storage->freed;
    fault.copied = storage->copied;
  }
  return fault;
}

}  // namespace

Storage* Shadow::live_at(npu_addr addr) {
  return find_in(live_, addr);
}

const Storage* Shadow::live_at(npu_addr addr) const {
  return find_in(live_, addr);
}

const Storage* Shadow::freed_at(npu_addr addr) const {
  return find_in(freed_, addr);
}

template <class Visit>
void Shadow::each_live(npu_addr begin, npu_addr end, const Visit& visit) {
  auto at = live_.upper_bound(begin);
  if (at != live_.begin() && std::prev(at)->second.end() > begin) --at;
  for (; at != live_.end() && at->first < end; ++at) visit(at->second);
}

void Shadow::allocated(Storage storage) {
  auto at = freed_.upper_bound(storage.begin);
  if (at != freed_.begin() && std::prev(at)->second.end() > storage.begin) --at;
  while (at != freed_.end() && at->first < storage.end()) {
    // The last work of each stream on the old memory counts as work on the new one.
    std::map<uint32_t, Access> last;
    for (Access& access : at->second.accesses) {
      Access& kept = last[access.stamp.stream];
      if (kept.stamp.tick < access.stamp.tick) kept = std::move(access);
    }
    const auto all = std::make_shared<const Bytes>(Run{storage.begin, storage.end()});
    for (auto& [stream, access] : last) storage.accesses.push_back({access.stamp, true, all, access.record});
    // What is left of it on either side has no new owner yet.
    Storage old = std::move(at->second);
    at = freed_.erase(at);
    for (const Run part : {Run{old.begin, storage.begin}, Run{storage.end(), old.end()}}) {
      if (part.begin >= part.end || part.begin < old.begin || part.end > old.end()) continue;
      Storage rest = old;
      rest.begin = part.begin;
      rest.size = part.size();
      freed_[rest.begin] = std::move(rest);
    }
  }
  storage.whole = {storage.begin, storage.end()};
  live_[storage.begin] = std::move(storage);
}

std::vector<EarlyFree> Shadow::freed(npu_addr addr, const RecordPtr& record, const Clock& now,
                                     const std::vector<uint32_t>& passed) {
  const auto found = live_.find(addr);
  if (found == live_.end()) return {};
  Storage storage = std::move(found->second);
  live_.erase(found);
  storage.freed = record;
  storage.freed_at = ++frees_;
  std::vector<EarlyFree> early;
  if (!storage.is_of_graphs) {
    for (const Access& access : storage.accesses) {
      if (now.has(access.stamp) || std::count(passed.begin(), passed.end(), access.stamp.stream)) continue;
      const Touch touch{0, access.write, false, *access.bytes};
      early.push_back({access, fault_of(Fault::kRace, touch, {access.bytes->begin(), access.bytes->end()}, &storage)});
    }
  }
  // Bits are not asked for any more; who touched it is, until the memory has a new owner.
  storage.written = Written(storage.size);
  freed_[addr] = std::move(storage);
  if (freed_.size() > kMostFreed) forget_oldest();
  return early;
}

// A quarter of them, so that it is rarely called.
void Shadow::forget_oldest() {
  std::vector<uint64_t> ages;
  for (const auto& [addr, storage] : freed_) ages.push_back(storage.freed_at);
  const auto middle = ages.begin() + static_cast<std::ptrdiff_t>(ages.size() / 4);
  std::nth_element(ages.begin(), middle, ages.end());
  std::erase_if(freed_, [limit = *middle](const auto& entry) { return entry.second.freed_at <= limit; });
}

bool Shadow::is_of_graphs(const Bytes& bytes) const {
  for (const npu_addr addr : {bytes.begin(), bytes.end() - 1}) {
    for (const Storage* storage : {live_at(addr), freed_at(addr)}) {
      if (storage && storage->is_of_graphs) return true;
    }
  }
  return false;
}

std::optional<Fault> Shadow::check_memory(const Touch& touch, npu_addr base, bool in_replay) const {
  if (touch.unsure || touch.bytes.empty()) return std::nullopt;
  const Storage* home = live_at(touch.bytes.begin());
  if (home && touch.bytes.end() <= home->end()) return std::nullopt;
  if (in_replay && is_of_graphs(touch.bytes)) return std::nullopt;

  // Whose memory was meant: the tensor that the operand points to, if it touches that at all, or else the first one.
  const auto is_touched = [&](const Storage* storage) {
    return storage && touch.bytes.begin() < storage->end() && storage->begin < touch.bytes.end();
  };
  if (const Storage* gone = freed_at(base); is_touched(gone)) {
    return fault_of(Fault::kAfterFree, touch, {touch.bytes.begin(), touch.bytes.end()}, gone);
  }
  home = live_at(base);
  if (!is_touched(home)) {
    home = nullptr;
    touch.bytes.each_run([&](const Run& run) {
      home = live_at(run.begin);
      if (!home) home = live_at(run.end - 1);
      return home == nullptr;
    });
  }
  Run wrong;
  touch.bytes.each_run([&](const Run& run) {
    if (home && run.begin >= home->begin && run.end <= home->end()) return true;
    wrong = run;
    return false;
  });
  if (wrong.size() == 0) return std::nullopt;
  if (home) {
    if (wrong.begin < home->begin) {
      wrong.end = std::min(wrong.end, home->begin);
      return fault_of(Fault::kBeforeBegin, touch, wrong, home);
    }
    wrong.begin = std::max(wrong.begin, home->end());
    return fault_of(Fault::kPastEnd, touch, wrong, home);
  }
  // No live tensor is touched.
  for (const npu_addr addr : {wrong.begin, wrong.end - 1}) {
    if (const Storage* storage = freed_at(addr)) {
      wrong = {std::max(wrong.begin, storage->begin), std::min(wrong.end, storage->end())};
      return fault_of(Fault::kAfterFree, touch, wrong, storage);
    }
  }
  const auto above = live_.upper_bound(wrong.begin);
  if (above != live_.begin()) {
    const Storage& below = std::prev(above)->second;
    if (wrong.begin - below.end() < kNear) return fault_of(Fault::kPastEnd, touch, wrong, &below);
  }
  if (above != live_.end() && above->second.begin - wrong.end < kNear) {
    return fault_of(Fault::kBeforeBegin, touch, wrong, &above->second);
  }
  return fault_of(Fault::kNoTensor, touch, wrong, nullptr);
}

std::optional<Fault> Shadow::check_written(const Touch& touch, const Touch* before, size_t count,
                                           bool in_replay) const {
  if (touch.write || touch.unsure || touch.bytes.empty()) return std::nullopt;
  if (in_replay && is_of_graphs(touch.bytes)) return std::nullopt;
  const Storage* storage = live_at(touch.bytes.begin());
  if (!storage || storage->written.all(0, storage->size)) return std::nullopt;
  std::optional<Fault> fault;
  (touch.used ? *touch.used : touch.bytes).each_run([&](const Run& run) {
    if (run.begin < storage->begin || run.end > storage->end()) return true;
    const uint64_t from = run.begin - storage->begin, to = run.end - storage->begin;
    const uint64_t first = storage->written.first_unwritten(from, to);
    if (first == to) return true;
    const Run bytes{storage->begin + first, storage->begin + storage->written.first_written(first, to)};
    for (size_t k = 0; k < count; ++k) {
      if (before[k].write && before[k].bytes.overlaps(Bytes(bytes))) return true;
    }
    fault = fault_of(Fault::kUnwritten, touch, bytes, storage);
    return false;
  });
  return fault;
}

std::optional<Fault> Shadow::check_race(const Touch& touch, const Clock& now) const {
  if (touch.unsure || touch.bytes.empty()) return std::nullopt;
  const Storage* storage = live_at(touch.bytes.begin());
  if (!storage) return std::nullopt;
  for (const Access& access : storage->accesses) {
    if ((!access.write && !touch.write) || now.has(access.stamp)) continue;
    const Run both = touch.bytes.common(*access.bytes);
    if (both.size() == 0) continue;
    Fault fault = fault_of(Fault::kRace, touch, both, storage);
    fault.other = access.record;
    fault.other_writes = access.write;
    return fault;
  }
  return std::nullopt;
}

void Shadow::accessed(const Touch& touch, Stamp stamp, const Clock& now, const Clock& host, const RecordPtr& record) {
  if (touch.unsure) return;
  std::shared_ptr<const Bytes> bytes;
  each_live(touch.bytes.begin(), touch.bytes.end(), [&](Storage& storage) {
    // What comes behind this access comes behind all that came before it: an earlier one that it covers says nothing
    // more, unless it wrote and this one only reads.
    std::erase_if(storage.accesses, [&](const Access& old) {
      return host.has(old.stamp) ||
             (now.has(old.stamp) && (touch.write || !old.write) && touch.bytes.covers(*old.bytes));
    });
    if (storage.accesses.size() >= kMostAccesses) {
      const auto over = std::find_if(storage.accesses.begin(), storage.accesses.end(),
                                     [&](const Access& old) { return now.has(old.stamp); });
      storage.accesses.erase(over == storage.accesses.end() ? storage.accesses.begin() : over);
    }
    if (!bytes) bytes = std::make_shared<const Bytes>(touch.bytes);
    storage.accesses.push_back({stamp, touch.write, bytes, record});
  });
}

void Shadow::mark(npu_addr begin, npu_addr end, bool written, const RecordPtr& record) {
  each_live(begin, end, [&](Storage& storage) {
    const uint64_t from = std::max(begin, storage.begin) - storage.begin;
    const uint64_t to = std::min(end, storage.end()) - storage.begin;
    if (written) {
      storage.written.set(from, to);
    } else {
      storage.written.clear(from, to);
      storage.copied = record;
    }
  });
}

void Shadow::wrote(const Bytes& bytes) {
  bytes.each_run([&](const Run& run) {
    mark(run.begin, run.end, true, nullptr);
    return true;
  });
}

void Shadow::left_unwritten(const Bytes& bytes, const RecordPtr& record) {
  bytes.each_run([&](const Run& run) {
    mark(run.begin, run.end, false, record);
    return true;
  });
}

// Memory that is not followed counts as written.
bool Shadow::has_written(npu_addr begin, npu_addr end) const {
  const Storage* storage = live_at(begin);
  if (!storage) return true;
  return storage->written.all(begin - storage->begin, std::min(end, storage->end()) - storage->begin);
}

bool Shadow::is_written(const Bytes& bytes) const {
  return bytes.each_run([&](const Run& run) { return has_written(run.begin, run.end); });
}

void Shadow::copied(const Box& to, const Box& from, const RecordPtr& record) {
  if (is_written(Bytes(from))) return wrote(Bytes(to));
  // Of one length both: byte by byte, in stretches of one kind. memmove's order: what is read was there before.
  const Storage* source = live_at(from.begin());
  const uint64_t offset = from.begin() - source->begin;
  const uint64_t size = std::min(from.end(), source->end()) - from.begin();
  const Written before = source->written;
  for (uint64_t at = 0; at < size;) {
    const uint64_t unwritten = before.first_unwritten(offset + at, offset + size) - offset;
    if (unwritten > at) mark(to.begin() + at, to.begin() + unwritten, true, nullptr);
    const uint64_t next = before.first_written(unwritten + offset, offset + size) - offset;
    if (next > unwritten) mark(to.begin() + unwritten, to.begin() + next, false, record);
    at = next;
  }
  // From past the end: not followed.
  if (to.begin() + size < to.end()) mark(to.begin() + size, to.end(), true, nullptr);
}

void Shadow::copied(const npu_command& copy, const RecordPtr& record) {
  const npu_operand &to = copy.operands[0], &from = copy.operands[1];
  const auto to_width = static_cast<uint64_t>(npu::dtype_size(to.dtype));
  const auto from_width = static_cast<uint64_t>(npu::dtype_size(from.dtype));
  const Bytes all(Box(to.addr, copy.size, to.stride, copy.rank, to_width));
  if ((from.flags & NPU_OPERAND_IMMEDIATE) ||
      is_written(Bytes(Box(from.addr, copy.size, from.stride, copy.rank, from_width)))) {
    return wrote(all);
  }
  int64_t points = 1;
  for (int d = 0; d < copy.rank; ++d) points *= copy.size[d];
  if (points > kMostPoints) {  // as written as the source where that is all of one kind; else not worked out
    const Storage* source = live_at(from.addr);
    const bool none = source && source->written.none(0, source->size);
    return none ? left_unwritten(all, record) : wrote(all);
  }
  int64_t point[NPU_MAX_RANK] = {};
  while (true) {
    uint64_t source = from.addr, target = to.addr;
    for (int d = 0; d < copy.rank; ++d) {
      source += static_cast<uint64_t>(point[d] * from.stride[d]) * from_width;
      target += static_cast<uint64_t>(point[d] * to.stride[d]) * to_width;
    }
    mark(target, target + to_width, has_written(source, source + from_width), record);
    int d = copy.rank - 1;
    while (d >= 0 && ++point[d] == copy.size[d]) point[d--] = 0;
    if (d < 0) return;
  }
}

}  // namespace torch_npu::sanitizer
