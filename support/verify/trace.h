// A recording (.npt): what a device was given and what it answered. The format is in docs/verification.md.
#pragma once
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/program/program.h"
#include "support/verify/footprint.h"

namespace npu {

uint32_t crc32(const void* data, size_t size, uint32_t before = 0);

enum class Entry : uint32_t {
  kInfo = 1,     // JSON about the recording
  kAlloc = 2,    // address, size: memory of zeros
  kFree = 3,     // address
  kWrite = 4,    // address, bytes
  kCopy = 5,     // to, from, size
  kProgram = 6,  // number, text form
  kCommand = 7,
  kResult = 8,    // what the command before it left in one region: bytes, or their CRC
  kRead = 9,      // address, size, CRC: what the host read
  kEnd = 10,      // number of commands, CRC of the file up to here
  kDropped = 11,  // the command before it was refused, or failed: it is as if it had not been given
};

struct Result {
  uint32_t operand = 0;
  npu_addr addr = 0;
  uint64_t size = 0;
  bool has_data = false;
  uint32_t crc = 0;
  std::vector<std::byte> data;
};

// A command that owns its parts.
struct TraceCommand {
  uint64_t number = 0;   // as it was counted where it was recorded
  uint64_t program = 0;  // 0: none
  std::string label;
  npu_command command{};  // operands, params and label point into this object once borrow() has been called
  std::vector<npu_operand> operands;
  std::vector<npu_scalar> params;

  TraceCommand() = default;
  TraceCommand(const npu_command& command, uint64_t number, uint64_t program);
  npu_command borrow() const;
};

class TraceWriter {
 public:
  TraceWriter(const std::string& path, const std::string& info_json);  // throws std::runtime_error
  ~TraceWriter();                                                      // finishes
  void alloc(npu_addr addr, uint64_t size);
  void free(npu_addr addr);
  void write(npu_addr addr, const void* data, uint64_t size);
  void copy(npu_addr to, npu_addr from, uint64_t size);
  void program(uint64_t number, const npu_program_desc& desc);
  void command(const TraceCommand& command);
  // All so far is on disk when this returns, so that a crash of what comes next leaves it there.
  void flush();
  // The command that was written last, and has no results yet.
  void drop_command();
  void result(uint32_t operand, npu_addr addr, const void* data, uint64_t size, bool with_data);
  void read(npu_addr addr, const void* data, uint64_t size);
  void finish();  // throws std::runtime_error if the disk was full
  uint64_t commands() const { return commands_; }
  uint64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  class Pack;
  void put(const void* data, size_t size);
  void entry(Entry kind, const std::string& head, const void* data = nullptr, uint64_t size = 0);
  std::string path_;
  std::FILE* file_ = nullptr;
  uint64_t commands_ = 0, bytes_ = 0;
  uint32_t crc_ = 0;
  bool failed_ = false;
};

struct TraceEntry {
  Entry kind = Entry::kEnd;
  npu_addr addr = 0, from = 0;
  uint64_t size = 0;
  uint32_t crc = 0;             // kRead
  std::string text;             // kInfo
  std::vector<std::byte> data;  // kWrite
  uint64_t number = 0;          // kProgram
  Program program;
  TraceCommand command;
  std::vector<Result> results;  // of a command: those that follow it
};

// Reads a recording and checks it: throws std::runtime_error with what is wrong.
struct Trace {
  std::string path, info;
  bool cut_off = false;  // the process ended before the file did: the last command is what was under way
  std::vector<TraceEntry> entries;
  uint64_t commands = 0;
};
Trace read_trace(const std::string& path);

}  // namespace npu
