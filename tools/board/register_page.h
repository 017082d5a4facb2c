// The registers of a simulated NPU as a page of shared memory, for a driver that maps BARs. Memory does not tell of
// accesses: this side looks for words that differ from what it put there. A driver that reads back what it wrote before
// it goes on, as posted writes demand anyway, sees no difference to a card.
#pragma once
#include <string>

#include "drivers/rtl/simulator/simulation.h"

class RegisterPage {
 public:
  RegisterPage(rtl::Simulation& npu, const std::string& path, const std::string& reset_path);
  ~RegisterPage();  // the page reads as all ones then, as a card that is gone does, and the files are removed
  // Takes what was written and shows what there is. True: something was written.
  bool step();

 private:
  uint32_t word(uint32_t offset) const;
  void show(uint32_t offset, uint32_t value);
  void refresh();

  rtl::Simulation& npu_;
  const std::string path_, reset_path_;
  uint32_t *page_ = nullptr, *reset_ = nullptr;
  uint32_t shown_[64] = {};
};
