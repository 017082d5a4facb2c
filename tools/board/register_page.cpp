#include "tools/board/register_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "npu_hw.h"

using namespace npu_hw;

namespace {

constexpr uint64_t kPage = 4096;
// Set in what IRQ_STATUS shows: writing back the bits of an interrupt then changes the word.
constexpr uint32_t kMark = uint32_t{1} << 31;
constexpr uint32_t kSettings[] = {REG_RING_LO, REG_RING_HI, REG_RING_SIZE, REG_IRQ_ENABLE};
constexpr uint32_t kReadOnly[] = {REG_ID,        REG_VERSION,   REG_STATUS,    REG_HEAD,      REG_ERROR_CODE,
                                  REG_ERROR_TAG, REG_ERROR_LO,  REG_ERROR_HI,  REG_CYCLES_LO, REG_CYCLES_HI,
                                  REG_BUSY_LO,   REG_BUSY_HI,   REG_MATRIX_LO, REG_MATRIX_HI, REG_READS_LO,
                                  REG_READS_HI,  REG_WRITES_LO, REG_WRITES_HI, REG_PACKETS};

uint32_t* map_page(const std::string& path) {
  unlink(path.c_str());  // who still maps the page of a board that died keeps it
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  void* page = MAP_FAILED;
  if (fd >= 0 && ftruncate(fd, kPage) == 0) page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  if (page == MAP_FAILED)
    throw std::runtime_error("expected to create and map " + path + ", got '" + std::strerror(errno) + "'");
  return static_cast<uint32_t*>(page);
}

}  // namespace

RegisterPage::RegisterPage(rtl::Simulation& npu, const std::string& path, const std::string& reset_path)
    : npu_(npu), path_(path), reset_path_(reset_path), page_(map_page(path)), reset_(map_page(reset_path)) {
  show(REG_TAIL, 0);
  refresh();
}

RegisterPage::~RegisterPage() {
  std::memset(page_, 0xff, kPage);
  unlink(path_.c_str());
  unlink(reset_path_.c_str());
}

uint32_t RegisterPage::word(uint32_t offset) const {
  return std::atomic_ref<uint32_t>(page_[offset / 4]).load();
}

// Unless somebody has written in the meantime: that is taken first.
void RegisterPage::show(uint32_t offset, uint32_t value) {
  uint32_t before = shown_[offset / 4];
  if (std::atomic_ref<uint32_t>(page_[offset / 4]).compare_exchange_strong(before, value)) shown_[offset / 4] = value;
}

// An interrupt is seen last, when everything that it tells of is there.
void RegisterPage::refresh() {
  for (const uint32_t offset : kReadOnly) show(offset, npu_.read_register(offset));
  show(REG_IRQ_STATUS, npu_.interrupt() ? npu_.read_register(REG_IRQ_STATUS) | kMark : kMark);
}

bool RegisterPage::step() {
  const auto changed = [&](uint32_t offset, uint32_t value) { return value != shown_[offset / 4]; };
  const auto take = [&](uint32_t offset, uint32_t value) {
    npu_.write_register(offset, value);
    shown_[offset / 4] = value;
  };
  // The doorbell is looked at first and rung last: what was written before it is then seen before.
  const uint32_t tail = word(REG_TAIL), control = word(REG_CONTROL), irq = word(REG_IRQ_STATUS);
  bool any = false;
  if (std::atomic_ref<uint32_t>(*reset_).exchange(0) != 0) {
    npu_.reset();
    for (const uint32_t offset : {REG_RING_LO, REG_RING_HI, REG_RING_SIZE, REG_IRQ_ENABLE, REG_TAIL, REG_CONTROL}) {
      shown_[offset / 4] = 0;
      std::atomic_ref<uint32_t>(page_[offset / 4]).store(0);
    }
    return true;
  }
  for (const uint32_t offset : kSettings)
    if (const uint32_t value = word(offset); changed(offset, value)) take(offset, value), any = true;
  if (changed(REG_IRQ_STATUS, irq)) take(REG_IRQ_STATUS, irq), any = true;
  const bool control_written = changed(REG_CONTROL, control);
  if (control_written) {
    take(REG_CONTROL, control);
    npu_.advance(64);
    any = true;
  }
  if (control_written && (control & CONTROL_RESET)) {
    shown_[REG_TAIL / 4] = word(REG_TAIL);
    show(REG_TAIL, 0);
  } else if (changed(REG_TAIL, tail)) {
    take(REG_TAIL, tail);
    any = true;
  }
  refresh();
  if (control_written) show(REG_CONTROL, npu_.read_register(REG_CONTROL));  // the last: a reset is waited for by it
  return any;
}
