// What is known of one device's memory: which tensors lie where, which of their bytes were written, and who touched
// them. Plain C++: streams are numbers, and who did something is a Record that only the reports look into.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "csrc/core/observe/sanitizer/clock.h"
#include "csrc/core/observe/sanitizer/touches.h"
#include "csrc/core/observe/sanitizer/written.h"

namespace torch_npu::sanitizer {

struct Record;
using RecordPtr = std::shared_ptr<const Record>;

struct Access {
  Stamp stamp;
  bool write = false;
  std::shared_ptr<const Bytes> bytes;
  RecordPtr record;
};

// The memory of a tensor's storage: as many bytes as were asked for.
struct Storage {
  npu_addr begin = 0;
  uint64_t size = 0;
  bool is_of_graphs = false;   // of a graph's private pool, which replays use whether or not a tensor is there
  RecordPtr allocated, freed;  // freed: null while it is live
  RecordPtr copied;            // who last copied bytes here that nobody had written
  Written written;
  std::vector<Access> accesses;
  Run whole;              // of a freed one, of which only a part has no new owner; set when it is allocated
  uint64_t freed_at = 0;  // counts frees

  npu_addr end() const { return begin + size; }
};

struct Fault {
  enum Kind { kPastEnd, kBeforeBegin, kAfterFree, kNoTensor, kUnwritten, kRace } kind;
  uint32_t operand = 0;
  bool write = false;
  Run touched;         // from the first to the last byte of the access
  Run bytes;           // the first that are at fault
  npu_addr begin = 0;  // of the tensor
  uint64_t size = 0;   // 0: there is none
  RecordPtr allocated, freed, copied;
  RecordPtr other;  // of a race
  bool other_writes = false;
};

// Memory that was freed while another stream may have been using it.
struct EarlyFree {
  Access access;
  Fault fault;
};

class Shadow {
 public:
  // A tensor's memory. What is known of earlier tensors there goes, except who may still be using it.
  void allocated(Storage storage);
  // `passed`: streams that the allocator waits for. Returns what others may still be doing with it.
  std::vector<EarlyFree> freed(npu_addr addr, const RecordPtr& record, const Clock& now,
                               const std::vector<uint32_t>& passed);

  // `in_replay`: by a graph, for whom the memory of its pool is always there.
  std::optional<Fault> check_memory(const Touch& touch, npu_addr base, bool in_replay) const;
  // `before`: what the same command touches first.
  std::optional<Fault> check_written(const Touch& touch, const Touch* before, size_t count, bool in_replay) const;
  std::optional<Fault> check_race(const Touch& touch, const Clock& now) const;

  // `host`: what every later work comes behind, whatever its stream.
  void accessed(const Touch& touch, Stamp stamp, const Clock& now, const Clock& host, const RecordPtr& record);
  void wrote(const Bytes& bytes);
  // These were stored as they are by somebody who chose them, and are still unwritten.
  void left_unwritten(const Bytes& bytes, const RecordPtr& record);
  bool is_written(const Bytes& bytes) const;
  // Element by element, `to` becomes as written as `from` is.
  void copied(const Box& to, const Box& from, const RecordPtr& record);
  void copied(const npu_command& copy, const RecordPtr& record);

  const Storage* live_at(npu_addr addr) const;

 private:
  using Map = std::map<npu_addr, Storage>;
  Storage* live_at(npu_addr addr);
  const Storage* freed_at(npu_addr addr) const;
  bool is_of_graphs(const Bytes& bytes) const;
  template <class Visit>
  void each_live(npu_addr begin, npu_addr end, const Visit& visit);
  bool has_written(npu_addr begin, npu_addr end) const;
  void mark(npu_addr begin, npu_addr end, bool written, const RecordPtr& record);

  void forget_oldest();

  Map live_, freed_;
  uint64_t frees_ = 0;
};

}  // namespace torch_npu::sanitizer
