// The lines of the debug log: what is in them, and how they are written. Internal to the log.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/core/observe/debug.h"

namespace torch_npu::debug {

enum class Tag { Npu, Fallback, View, Cpu, Copy };

struct TensorText {
  std::vector<int64_t> shape;
  std::string dtype;   // "float32"
  std::string device;  // "npu:0"
};

struct OpLine {
  Tag tag = Tag::Npu;
  std::string op;  // "aten::mm"
  std::vector<TensorText> tensors;
  bool is_product = false;  // of the tensors; of known ops the name says so
  std::string route;        // of a copy: "cpu -> npu:0"
};

struct TransferLine {
  const char* direction;  // "D->H"
  uint64_t bytes;
};

struct CallLine {
  const char* function;   // "submit"
  std::string what;       // "MATMUL aten::mm [128x3072], stream 0"
  std::string problem;    // why it failed; empty while it runs
  bool is_inside = true;  // of an op
};

// What a refused command was made from (docs/design/legalisation.md): once for each signature.
struct DecisionLine {
  std::string command;
  std::string words;               // the driver's own
  std::vector<std::string> rules;  // none: nothing was found
  size_t steps = 0;
};

// Opens the file, if there is one; throws if that fails.
void open_log(const Options& options);
void close_log() noexcept;

// Each is one write, so that lines of threads do not mix.
void write_line(const OpLine& line);
void write_line(const TransferLine& line, const std::string& op);
void write_line(const CallLine& line, const std::string& op);
void write_line(const DecisionLine& line, const std::string& op);

}  // namespace torch_npu::debug
