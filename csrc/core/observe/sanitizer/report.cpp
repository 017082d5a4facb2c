#include "csrc/core/observe/sanitizer/report.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sstream>

#include "csrc/core/memory/oom.h"
#include "support/program/operand_shape.h"
#include "support/program/program.h"

namespace torch_npu::sanitizer {
namespace {

constexpr size_t kMostReports = 1000;

struct Reports {
  std::mutex mutex;
  std::vector<Report> all;
};

Reports& kept() {
  static auto* reports = new Reports;
  return *reports;
}

std::string list_of(const int64_t* values, int count) {
  std::string text = "[";
  for (int k = 0; k < count; ++k) text += (k ? ", " : "") + std::to_string(values[k]);
  return text + "]";
}

// "operand 1, f32 [5, 4], strides [4, 1]"
std::string describe_operand(const npu_command& command, uint32_t operand) {
  int64_t size[NPU_MAX_RANK];
  npu::operand_shape(command, operand, size);
  const npu_operand& place = command.operands[operand];
  return "operand " + std::to_string(operand) + ", " + npu::dtype_name(place.dtype) + " " +
         list_of(size, command.rank) + ", strides " + list_of(place.stride, command.rank);
}

// "bytes 40 to 48", counted from the tensor's first one, or addresses where there is no tensor.
std::string range_of(Run run, const Fault& fault) {
  std::ostringstream text;
  if (fault.size == 0) {
    text << "[0x" << std::hex << run.begin << ", 0x" << run.end << ")";
  } else {
    text << "bytes " << static_cast<int64_t>(run.begin - fault.begin) << " to "
         << static_cast<int64_t>(run.end - fault.begin);
  }
  return text.str();
}

std::string size_of(uint64_t bytes) {
  return std::to_string(bytes) + " bytes" + (bytes < 1024 ? "" : " (" + human_bytes(bytes) + ")");
}

class Text {
 public:
  explicit Text(const std::string& title) : text_(title) {}
  void add(const char* name, const std::string& line) {
    char head[16];
    std::snprintf(head, sizeof(head), "\n  %-11s", name);
    text_ += head + line;
  }
  void add(const char* name, const RecordPtr& record, const std::string& more = "") {
    if (!record) return;
    const std::string place = place_of(*record);
    add(name, (place.empty() ? "" : place + ": ") + record->what + on(*record) + more);
  }
  static std::string on(const Record& record) { return record.stream.empty() ? "" : " on " + record.stream; }
  const std::string& str() const { return text_; }

 private:
  std::string text_;
};

struct Words {
  const char* kind;
  std::string title;
  const char* remedy;
};

Words words_of(const Fault& fault, const Record& at) {
  const std::string does = at.what + (fault.write ? " writes " : " reads ");
  switch (fault.kind) {
    case Fault::kPastEnd:
      return {
          "memory", does + "past the end of a tensor",
          "give the access as many elements as the tensor has; a storage that was made smaller, or sizes and strides "
          "of a command that do not fit its tensor, are the usual causes"};
    case Fault::kBeforeBegin:
      return {"memory", does + "before the beginning of a tensor", "look at the offset and at negative strides"};
    case Fault::kAfterFree:
      return {"memory", does + "the memory of a tensor that was freed",
              "keep the tensor as long as its address is used: by a graph, by DLPack, by code of your own"};
    case Fault::kNoTensor:
      return {"memory", does + "memory that belongs to no tensor",
              fault.touched.begin == 0 ? "the tensor has no memory: its storage was made empty (resize_(0))"
                                       : "look where the address comes from"};
    case Fault::kUnwritten:
      return {"init", does + "bytes that nothing has written", "write them first, or use zeros instead of empty"};
    case Fault::kRace:
      return {"race",
              does + "what " + fault.other->what + " of another stream " + (fault.other_writes ? "writes" : "reads") +
                  ", and nothing orders the two",
              "let this stream wait for the other one behind that op: stream.wait_stream(), or an event recorded there "
              "and waited for here; or synchronize"};
  }
  return {};
}

}  // namespace

Report describe(const Fault& fault, const Record& at, const npu_command* command) {
  const Words words = words_of(fault, at);
  Report report;
  report.kind = words.kind;
  report.title = words.title;
  report.op = at.what;
  report.place = place_of(at);
  Text text("torch_npu sanitizer: " + report.kind + ": " + report.title);
  text.add("here", report.place + ": " +
                       (command ? std::string(npu::command_name(command->kind)) + " " : std::string()) + at.what +
                       Text::on(at));
  const bool partly = fault.touched.begin != fault.bytes.begin || fault.touched.end != fault.bytes.end;
  text.add("access", (command ? describe_operand(*command, fault.operand) + ": " : std::string()) +
                         range_of(fault.touched, fault) +
                         (partly ? ", at fault from " + range_of(fault.bytes, fault) : std::string()));
  if (fault.size) text.add("tensor", size_of(fault.size));
  const RecordPtr other = fault.other ? fault.other : fault.freed ? fault.freed : fault.allocated;
  text.add("allocated", fault.allocated);
  text.add("freed", fault.freed);
  text.add("copied", fault.copied && fault.kind == Fault::kUnwritten ? fault.copied : nullptr,
           ", bytes that nothing had written");
  text.add("the other", fault.other, fault.other_writes ? " (writes)" : " (reads)");
  text.add("remedy", words.remedy);
  if (other) {
    report.other_op = other->what;
    report.other_place = place_of(*other);
  }
  report.text = text.str();
  return report;
}

Report describe_early_free(const EarlyFree& early, const Record& next) {
  const Record& user = *early.access.record;
  Report report;
  report.kind = "race";
  report.title = "a tensor was freed while " + user.what + " of another stream may still be " +
                 (early.access.write ? "writing" : "reading") + " it, and its memory is given to the next one";
  report.op = user.what;
  report.place = place_of(user);
  Text text("torch_npu sanitizer: race: " + report.title);
  text.add("here", report.place + ": " + user.what + Text::on(user));
  text.add("access", range_of(early.fault.touched, early.fault));
  text.add("tensor", size_of(early.fault.size));
  text.add("allocated", early.fault.allocated);
  text.add("freed", early.fault.freed);
  text.add("next", place_of(next) + ": an allocation" + Text::on(next));
  text.add("remedy",
           "call tensor.record_stream(stream) before the tensor is freed, or let the stream that owns it wait for the "
           "other one first");
  if (early.fault.freed) {
    report.other_op = early.fault.freed->what;
    report.other_place = place_of(*early.fault.freed);
  }
  report.text = text.str();
  return report;
}

Report describe_host(const Record& at, bool writes, const Record& copy, bool copy_writes, Run bytes, uint64_t size) {
  Report report;
  report.kind = "race";
  report.title = at.what + " of the CPU " + (writes ? "writes" : "reads") + " pinned memory that " + copy.what +
                 " may still be " + (copy_writes ? "writing" : "reading");
  report.op = at.what;
  report.place = place_of(at);
  report.other_op = copy.what;
  report.other_place = place_of(copy);
  Text text("torch_npu sanitizer: race: " + report.title);
  text.add("here", report.place + ": " + at.what);
  text.add("access", "bytes " + std::to_string(bytes.begin) + " to " + std::to_string(bytes.end) + " of the copy's " +
                         std::to_string(size));
  text.add("the other", report.other_place + ": " + copy.what + Text::on(copy));
  text.add("remedy", "synchronize the copy's stream, or an event behind the copy, before the host uses the memory");
  report.text = text.str();
  return report;
}

void deliver(const Report& report, bool raises) {
  bool is_new = true;
  {
    std::lock_guard lock(kept().mutex);
    for (Report& old : kept().all) {
      if (old.title == report.title && old.place == report.place && old.other_place == report.other_place) {
        ++old.count;
        is_new = false;
        break;
      }
    }
    if (is_new && kept().all.size() < kMostReports) kept().all.push_back(report);
  }
  if (raises) TORCH_CHECK(false, report.text);
  if (is_new) std::fputs((report.text + "\n").c_str(), stderr);
}

std::vector<Report> reports() {
  std::lock_guard lock(kept().mutex);
  return kept().all;
}

void clear_reports() {
  std::lock_guard lock(kept().mutex);
  kept().all.clear();
}

void watch_exit() {
  static const bool watched = [] {
    const pid_t owner = getpid();
    on_exit(
        [](int status, void* started) {
          const std::vector<Report> all = reports();
          if (all.empty() || getpid() != static_cast<pid_t>(reinterpret_cast<intptr_t>(started))) return;
          std::fprintf(stderr, "torch_npu sanitizer: %zu report%s\n", all.size(), all.size() == 1 ? "" : "s");
          for (const Report& report : all) {
            std::fprintf(stderr, "  %s: %s, at %s%s\n", report.kind.c_str(), report.title.c_str(), report.place.c_str(),
                         report.count > 1 ? (" (" + std::to_string(report.count) + " times)").c_str() : "");
          }
          std::fflush(nullptr);
          if (status == 0) _exit(kExitStatus);
        },
        reinterpret_cast<void*>(static_cast<intptr_t>(owner)));
    return true;
  }();
  (void)watched;
}

}  // namespace torch_npu::sanitizer
