#include "tools/board/mount.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace {

[[noreturn]] void fail(const std::string& wanted) {
  throw std::runtime_error("expected " + wanted + ", got '" + std::strerror(errno) + "'");
}

// Runs fusermount3; `channel` is where it sends the file descriptor to.
bool run_fusermount(const char* option, const std::string& value, const std::string& folder, int channel) {
  const pid_t child = fork();
  if (child == 0) {
    if (channel >= 0) setenv("_FUSE_COMMFD", std::to_string(channel).c_str(), 1);
    if (value.empty())
      execlp("fusermount3", "fusermount3", option, "--", folder.c_str(), nullptr);
    else
      execlp("fusermount3", "fusermount3", option, value.c_str(), "--", folder.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int receive_descriptor(int channel) {
  char byte;
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(channel, &message, 0) <= 0) return -1;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  int fd = -1;
  if (header && header->cmsg_type == SCM_RIGHTS) std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return fd;
}

int mount_by_fusermount(const std::string& folder) {
  int channel[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, channel) != 0) return -1;
  const bool mounted = run_fusermount("-o", "fsname=npu-board,subtype=npu", folder, channel[0]);
  close(channel[0]);
  const int fd = mounted ? receive_descriptor(channel[1]) : -1;
  close(channel[1]);
  return fd;
}

}  // namespace

void unmount_fuse(const std::string& folder) {
  if (umount2(folder.c_str(), MNT_DETACH) != 0 && errno == EPERM) run_fusermount("-uz", "", folder, -1);
}

int mount_fuse(const std::string& folder) {
  struct stat facts{};
  if (stat(folder.c_str(), &facts) != 0 && errno == ENOTCONN) unmount_fuse(folder);
  if (stat(folder.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode)) {
    if (errno == 0) errno = ENOTDIR;
    fail("a folder " + folder + " to put the card's files into");
  }
  const int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (fd < 0) fail("/dev/fuse to open (the board's files are served through it; --bars works without)");
  const std::string options = "fd=" + std::to_string(fd) + ",rootmode=40000,user_id=" + std::to_string(geteuid()) +
                              ",group_id=" + std::to_string(getegid());
  if (mount("npu-board", folder.c_str(), "fuse.npu", MS_NOSUID | MS_NODEV, options.c_str()) == 0) return fd;
  close(fd);
  if (errno != EPERM) fail("to mount " + folder);
  const int other = mount_by_fusermount(folder);
  if (other < 0) {
    errno = EPERM;
    fail("to mount " + folder + " as root or by fusermount3");
  }
  return other;
}
