// What a forked child does with the handle of a thread that stayed in its parent.
#pragma once

#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace npu::driver {

// There is no such thread to join or to detach, and destroying the handle would end the process: it is kept for ever.
inline void abandon(std::thread& thread) {
  static auto* mutex = new std::mutex;
  static auto* abandoned = new std::vector<std::thread>;
  std::lock_guard<std::mutex> lock(*mutex);
  abandoned->push_back(std::move(thread));
}

}  // namespace npu::driver
