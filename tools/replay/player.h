// Plays a recording on a driver.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "support/legalise/stream_memory.h"
#include "support/loading/driver_library.h"
#include "support/verify/budget.h"
#include "support/verify/trace.h"

namespace replay {

// The recording and the device do not fit, or the device failed: not a difference.
struct Problem {
  std::string text;
};

struct Counts {
  uint64_t commands = 0, bytes = 0, same_bits = 0, within_budget = 0, refused = 0, reads = 0;
  double used = 0;  // largest part of the budget
};

// What the driver made of a command.
struct Answer {
  enum Kind { kNative, kLegalised, kRefused } kind = kRefused;
  std::string words;                 // the driver's own, where it refused the command
  npu::legalise::Decision decision;  // what was made of it then
  double milliseconds = 0;           // by the device's events, from the first to the last command; 0: it has no clock
};

class Player {
 public:
  Player(const npu::Trace& trace, const std::string& driver, uint32_t device, npu::Budget budget);
  ~Player();
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  // Plays up to and without the command with this number (0: all). Empty, or the text of the first difference.
  // `each` is called before every command.
  std::string play(uint64_t until, const std::function<void(const npu::TraceEntry&)>& each);
  // The next entry of the recording. Empty, or the text of a difference; what comes next finds the recorded results.
  std::string step(const npu::TraceEntry& entry);
  // Runs a command, with a time, and puts the memory back that it found.
  void time(const npu::TraceEntry& entry);
  // What a driver refuses is made from what it takes, from now on.
  void legalise();
  // Of the command that ran last.
  const Answer& answer() const { return answer_; }
  // The command at which play() stopped, as a recording of its own.
  void extract(const std::string& path);
  const Counts& counts() const { return counts_; }

 private:
  void check(npu_status status, const std::string& doing) const;
  void prepare(npu_addr addr, uint64_t size);
  void alloc(const npu::TraceEntry& entry);
  void upload(npu_addr addr, const void* data, uint64_t size);
  void download(npu_addr addr, void* data, uint64_t size);
  void need(npu_addr addr, uint64_t size);
  npu_status submit(const npu::TraceEntry& entry, const npu_command& command);
  npu_status give(const npu::TraceEntry& entry, npu_command command);
  npu_status give_legalised(const npu::TraceEntry& entry, npu_command command);
  std::string run(const npu::TraceEntry& entry);
  std::string compare(const npu::TraceEntry& entry, const npu_command& command, const npu_program_desc* program);
  void refused(const npu::TraceEntry& entry, const npu_command& command, const npu_program_desc* program);
  std::vector<npu::Region> regions(const npu_command& command, const npu_program_desc* program);

  const npu::Trace& trace_;
  npu::Budget budget_;
  npu::OpenedDriver driver_;
  npu_device* device_ = nullptr;
  npu_stream* stream_ = nullptr;
  npu::Mirror memory_;  // side 0: addresses of the recording, side 1: of the device
  std::map<uint64_t, const npu::Program*> programs_;
  std::map<uint64_t, npu_program*> made_;  // null: the driver does not have it
  const npu::TraceEntry* stopped_ = nullptr;
  Counts counts_;
  Answer answer_;
  // Begin and end of a command.
  npu_event* events_[2] = {};
  std::unique_ptr<npu::legalise::StreamMemory> scratch_;
  std::unique_ptr<npu::legalise::Legaliser> legaliser_;
};

}  // namespace replay
