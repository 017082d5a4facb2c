// What ran where: ops on the CPU, commands on the device.
#include "csrc/aten/fallback/fallback.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include "csrc/core/launch/launch.h"
#include "csrc/core/launch/legalised.h"
#include "csrc/core/launch/precision.h"
#include "csrc/core/launch/traffic.h"
#include "csrc/core/observe/debug.h"
#include "csrc/core/observe/sanitizer/report.h"
#include "csrc/core/observe/sanitizer/sanitizer.h"
#include "csrc/python/bindings.h"

namespace py = pybind11;

namespace torch_npu {
namespace {

void enable_debug(int level, bool json, const std::string& file, std::optional<bool> color) {
  debug::Options options;
  options.level = level;
  options.format = json ? debug::Format::Json : debug::Format::Text;
  options.file = file;
  if (color) options.color = *color ? debug::Color::Always : debug::Color::Never;
  debug::enable(options);
}

py::list sanitizer_reports() {
  py::list out;
  for (const sanitizer::Report& report : sanitizer::reports()) {
    py::dict entry;
    entry["kind"] = report.kind;
    entry["title"] = report.title;
    entry["op"] = report.op;
    entry["place"] = report.place;
    entry["other_op"] = report.other_op;
    entry["other_place"] = report.other_place;
    entry["count"] = report.count;
    entry["text"] = report.text;
    out.append(entry);
  }
  return out;
}

py::list legalised() {
  py::list out;
  for (const LegalisedCommand& entry : legalised_commands()) {
    py::dict of;
    of["device"] = static_cast<int>(entry.device);
    of["command"] = entry.decision.command;
    of["words"] = entry.decision.words;
    of["rules"] = entry.decision.rules;
    of["steps"] = entry.decision.steps;
    of["runs"] = entry.decision.runs;
    out.append(of);
  }
  return out;
}

}  // namespace

void bind_reports(py::module_& m) {
  m.def("fallback_counts", [] { return fallback::counts(); });
  m.def("fallback_reset", [] { fallback::reset(); });
  m.def("fallback_mode", [] {
    switch (fallback::mode()) {
      case fallback::Mode::Warn:
        return "warn";
      case fallback::Mode::Quiet:
        return "quiet";
      case fallback::Mode::Error:
        return "error";
    }
    return "?";
  });
  m.def("fallback_set_mode",
        torch::wrap_pybind_function([](const std::string& text) { fallback::set_mode(fallback::parse_mode(text)); }));
  m.def("legalised_commands", &legalised);
  m.def("legalised_reset", &reset_legalised_counts);
  m.def("native_counting", [](bool on) { count_ops(on); });
  m.def("native_counts", [] { return native_counts(); });
  m.def("native_bytes", [] { return native_bytes(); });
  m.def("native_reset", [] { reset_native_counts(); });
  m.def("debug_enable", torch::wrap_pybind_function(&enable_debug));
  m.def("debug_disable", [] { debug::disable(); });
  m.def("debug_level", [] { return debug::level(); });
  m.def("sanitizer_enable", torch::wrap_pybind_function([](const std::string& checks, bool raises) {
          sanitizer::enable({sanitizer::parse_checks(checks), raises});
        }));
  m.def("sanitizer_from_environment", torch::wrap_pybind_function([] { sanitizer::enable_from_environment(); }));
  m.def("sanitizer_disable", torch::wrap_pybind_function([] { sanitizer::disable(); }));
  m.def("sanitizer_checks", [] { return sanitizer::options().checks; });
  m.def("sanitizer_raises", [] { return sanitizer::options().raises; });
  m.def("sanitizer_reports", &sanitizer_reports);
  m.def("sanitizer_clear", [] { sanitizer::clear_reports(); });
  m.def("is_blocking", [] { return is_blocking(); });
  m.def("set_blocking", [](bool on) { set_blocking(on); });
  m.def("reduced_products", [] { return reduced_products(); });
  m.def("set_reduced_products", [](bool on) { set_reduced_products(on); });
}

}  // namespace torch_npu
