// npu-board: a card without the card. Serves the files of one around the NPU's RTL in a simulator, for drivers/fpga.
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "drivers/rtl/runtime/options.h"
#include "tools/board/card_files.h"
#include "tools/board/mount.h"
#include "tools/board/register_page.h"

namespace {

const char kHelp[] =
    R"(usage: npu-board FOLDER [options]

Simulates the NPU's RTL and serves the files of a card in FOLDER, which must exist. Says "ready" and how to use it, then runs
until SIGINT or SIGTERM.

  (default)       XDMA's files xdma0_user, xdma0_h2c_0, xdma0_c2h_0, xdma0_events_0, by FUSE; xdma0_reset resets the card
  --bars          plain files to be mapped: resource0 (registers) and resource2 (memory); reset resets the card
  --name NAME     instead of xdma0
  --memory SIZE   of the card: 16M to 64G; default 1G, taken when it is used
  --latency N     cycles from a request on the card's bus to its answer; default 20
  --stall SEED    random pauses on every channel of the bus
  --fault KIND@N  with the N-th doorbell: packet, address, bus, interrupt or hang; id: another design from the beginning
)";

volatile sig_atomic_t g_stop = 0;
void stop(int) {
  g_stop = 1;
}

struct Arguments {
  std::string folder, name = "xdma0", fault;
  bool bars = false;
  rtl::SimulationOptions simulation;
};

Arguments parse(int argc, char** argv) {
  Arguments out;
  out.simulation.memory = uint64_t{1} << 30;
  for (int i = 1; i < argc; i++) {
    const std::string word = argv[i];
    if (word == "--bars") {
      out.bars = true;
    } else if (word.starts_with("--")) {
      if (i + 1 == argc) throw std::invalid_argument("expected a value after " + word + ", got the end (see --help)");
      rtl::parse_options(word.substr(2) + "=" + argv[++i],
                         {{"name=NAME", &out.name},
                          {"memory=16M..64G", &out.simulation.memory, 16 << 20, uint64_t{1} << 36},
                          {"latency=1..10000", &out.simulation.latency, 1, 10000},
                          {"stall=SEED", &out.simulation.stall, 0, UINT32_MAX},
                          {"fault=KIND@N", &out.fault}});
    } else if (out.folder.empty()) {
      out.folder = word;
    } else {
      throw std::invalid_argument("expected one folder, got '" + out.folder + "' and '" + word + "' (see --help)");
    }
  }
  if (out.folder.empty()) throw std::invalid_argument("expected a folder to put the card's files into (see --help)");
  if (!out.fault.empty()) out.simulation.fault = rtl::parse_fault(out.fault);
  out.simulation.memory = out.simulation.memory / 4096 * 4096;
  return out;
}

void say_ready(const Arguments& arguments, const std::string& options) {
  std::printf("npu-board: ready: TORCH_NPU_DRIVER=fpga:%s:memory=%lluM\n", options.c_str(),
              static_cast<unsigned long long>(arguments.simulation.memory >> 20));
  std::fflush(stdout);
}

// Cycles between two looks at requests: some hundred microseconds.
constexpr uint64_t kSlice = 1000;

void serve_fuse(const Arguments& arguments, const sigset_t& unblocked) {
  rtl::Simulation npu(arguments.simulation);
  CardFiles files(npu, arguments.name);
  Fuse fuse(mount_fuse(arguments.folder), files);
  try {
    const std::string prefix = arguments.folder + "/" + arguments.name;
    say_ready(arguments, "path=" + prefix + ":reset=" + prefix + "_reset");
    while (!g_stop) {
      const bool working = !npu.interrupt() && npu.working();
      pollfd requests = {fuse.fd(), POLLIN, 0};
      const timespec now = {0, 0};
      // Signals come in here and nowhere else.
      if (ppoll(&requests, 1, working ? &now : nullptr, &unblocked) > 0 && !fuse.serve()) return;
      if (working) npu.advance(kSlice);
      if (files.notice_interrupt()) fuse.wake(CardFiles::kEvents);
    }
  } catch (...) {
    unmount_fuse(arguments.folder);
    throw;
  }
  unmount_fuse(arguments.folder);
}

void serve_bars(Arguments arguments, const sigset_t& unblocked) {
  const std::string memory = arguments.folder + "/resource2";
  unlink(memory.c_str());  // who still maps that of a board that died keeps it
  const int fd = open(memory.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(arguments.simulation.memory)) != 0)
    throw std::runtime_error("expected to create " + memory + ", got '" + std::strerror(errno) + "'");
  arguments.simulation.memory_file = fd;
  {
    rtl::Simulation npu(arguments.simulation);
    const std::string registers = arguments.folder + "/resource0", reset = arguments.folder + "/reset";
    RegisterPage page(npu, registers, reset);
    say_ready(arguments, "bar=" + registers + ":window=" + memory + ":reset=" + reset);
    while (!g_stop) {
      const bool written = page.step(), working = !npu.interrupt() && npu.working();
      if (working) npu.advance(kSlice);
      const timespec pause = {0, written || working ? 0 : 50000};
      ppoll(nullptr, 0, &pause, &unblocked);
    }
  }
  unlink(memory.c_str());
  close(fd);
}

}  // namespace

int main(int argc, char** argv) try {
  for (int i = 1; i < argc; i++)
    if (std::strcmp(argv[i], "--help") == 0 || std::strcmp(argv[i], "-h") == 0) return std::fputs(kHelp, stdout), 0;
  const Arguments arguments = parse(argc, argv);
  sigset_t blocked, unblocked;
  sigemptyset(&blocked);
  struct sigaction action{};
  action.sa_handler = stop;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    sigaddset(&blocked, signal);
    sigaction(signal, &action, nullptr);
  }
  sigprocmask(SIG_BLOCK, &blocked, &unblocked);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigdelset(&unblocked, signal);
  if (arguments.bars)
    serve_bars(arguments, unblocked);
  else
    serve_fuse(arguments, unblocked);
  return 0;
} catch (const std::invalid_argument& why) {
  std::fprintf(stderr, "npu-board: %s\n", why.what());
  return 2;
} catch (const std::exception& why) {
  std::fprintf(stderr, "npu-board: %s\n", why.what());
  return 1;
}
