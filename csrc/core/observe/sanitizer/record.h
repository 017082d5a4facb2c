// Who did something, for reports: an op, its Python line, its stream.
#pragma once
#include <memory>
#include <string>

#include "csrc/core/memory/memory_history.h"
#include "csrc/core/observe/sanitizer/shadow.h"

namespace torch_npu::sanitizer {

struct Record {
  std::string what;    // "aten::add", "a copy from the host"
  std::string stream;  // "npu:0 stream 3"; empty: none
  history::Traceback traceback;
  std::string node;            // of the backward pass: "AddmmBackward0"
  history::Traceback forward;  // of the op whose gradient it computes
};

// Takes the traceback, for which Python's lock may be needed: no lock may be held.
RecordPtr make_record(std::string what, const npu_stream* stream);

// "train.py:12 (step)", empty if nobody knows; of the backward pass "train.py:30 (main), gradient of train.py:12
// (step)".
std::string place_of(const Record& record);

void forget_forward_lines();

}  // namespace torch_npu::sanitizer
