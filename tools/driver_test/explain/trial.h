// A failed command, and what a driver with a certain bug would have made of it: where that is what the driver has, the
// bug is a good guess.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "support/program/rewrite.h"
#include "tools/driver_test/command/case.h"

namespace driver_test {

class Trial {
 public:
  Trial(const Case& failed, const Ran& ran, std::vector<npu_scalar> last_params);

  const View& view() const { return view_; }
  const npu_command& command() const { return view_.command; }
  const Ran& ran() const { return ran_; }
  const std::vector<npu_scalar>& last_params() const { return last_params_; }
  bool writes(size_t operand) const;

  // Would this command, run right, give what the driver has?
  void suppose(const std::string& bug, View changed);
  // Is this what the driver has?
  void suppose(const std::string& bug, const std::vector<Buffer>& memory);
  // The same with a changed program. COPY, and products without one, get one.
  void suppose(const std::string& bug, const npu::Rewrite::Visit& visit);

  // What needs no trial.
  void say_so(const std::string& bug) { found_.push_back(bug); }

  const std::vector<std::string>& found() const { return found_; }

 private:
  bool enough() const;
  View view_;
  const Ran& ran_;
  Tolerance tolerance_;
  std::vector<npu_scalar> last_params_;
  std::vector<std::string> found_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The table of hypotheses, room by room. Each adds what fits the command.
void suppose_status(Trial& trial);
void suppose_memory(Trial& trial);
void suppose_layouts(Trial& trial);
void suppose_sizes(Trial& trial);
void suppose_values(Trial& trial);
void suppose_programs(Trial& trial);
void suppose_products(Trial& trial);
void suppose_rows(Trial& trial);

// "\n  looks like: bf16 store truncates", or nothing.
std::string explanation(const Case& failed, const Ran& ran, const std::vector<npu_scalar>& last_params);

// The smallest failing command that is found in a short time, in words; nothing if none is smaller.
std::string smaller(Rig& rig, const Case& failed, const Ran& ran);

}  // namespace driver_test
