// The files that XDMA's driver makes of a card, in front of a simulated NPU.
#pragma once
#include "drivers/rtl/simulator/simulation.h"
#include "tools/board/fuse.h"

class CardFiles final : public DeviceFiles {
 public:
  CardFiles(rtl::Simulation& npu, const std::string& prefix);
  enum { kUser, kToCard, kFromCard, kEvents, kReset };

  const std::vector<File>& files() const override { return files_; }
  int read(size_t file, uint64_t offset, uint32_t size, char* to) override;
  int write(size_t file, uint64_t offset, const char* from, uint32_t size) override;
  bool readable(size_t file) override { return file != kEvents || events_ != 0; }
  // Looks at the interrupt. True: it has just come.
  bool notice_interrupt();

 private:
  rtl::Simulation& npu_;
  std::vector<File> files_;
  uint32_t events_ = 0;
  bool was_high_ = false;
};
