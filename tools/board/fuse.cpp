#include "tools/board/fuse.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace {

constexpr uint64_t kFirst = FUSE_ROOT_ID + 1;  // node of the first file
constexpr uint64_t kValid = 1;                 // second that the kernel may remember a name
constexpr uint32_t kPage = 4096;

// The body of a request.
template <class T>
T body(const char* request) {
  T value;
  std::memcpy(&value, request + sizeof(fuse_in_header), sizeof value);
  return value;
}

}  // namespace

Fuse::Fuse(int fd, DeviceFiles& files) : fd_(fd), files_(files), buffer_(kMostBytes + 2 * kPage), data_(kMostBytes) {
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
}

bool Fuse::serve() {
  const ssize_t n = ::read(fd_, buffer_.data(), buffer_.size());
  if (n < 0) {
    if (errno == ENODEV) return false;
    if (errno == EAGAIN || errno == EINTR || errno == ENOENT) return true;
    throw std::runtime_error(std::string("expected requests from /dev/fuse, got '") + std::strerror(errno) + "'");
  }
  if (static_cast<size_t>(n) >= sizeof(fuse_in_header)) handle(buffer_.data());
  return true;
}

void Fuse::answer(uint64_t id, int error, const void* data, size_t size) {
  fuse_out_header header{};
  header.unique = id;
  header.error = error;
  header.len = static_cast<uint32_t>(sizeof header + size);
  iovec parts[2] = {{&header, sizeof header}, {const_cast<void*>(data), size}};
  // An asker that was killed in the meantime is no error of ours.
  if (writev(fd_, parts, size ? 2 : 1) < 0 && errno != ENOENT && errno != ENODEV)
    throw std::runtime_error(std::string("expected /dev/fuse to take an answer, got '") + std::strerror(errno) + "'");
}

bool Fuse::attributes_of(uint64_t node, fuse_attr* out) const {
  std::memset(out, 0, sizeof *out);
  out->ino = node;
  out->nlink = 1;
  out->blksize = kPage;
  out->uid = geteuid();
  out->gid = getegid();
  if (node == FUSE_ROOT_ID) {
    out->mode = S_IFDIR | 0555;
    out->nlink = 2;
    return true;
  }
  if (node - kFirst >= files_.files().size()) return false;
  const DeviceFiles::File& file = files_.files()[node - kFirst];
  out->mode = S_IFREG | file.mode;
  out->size = file.size;
  return true;
}

void Fuse::lookup(uint64_t id, const char* name) {
  fuse_entry_out out{};
  for (size_t i = 0; i < files_.files().size(); i++)
    if (files_.files()[i].name == name) out.nodeid = kFirst + i;
  if (!out.nodeid) return answer(id, -ENOENT);
  attributes_of(out.nodeid, &out.attr);
  out.entry_valid = out.attr_valid = kValid;
  answer(id, 0, &out, sizeof out);
}

void Fuse::attributes(uint64_t id, uint64_t node) {
  fuse_attr_out out{};
  if (!attributes_of(node, &out.attr)) return answer(id, -ENOENT);
  out.attr_valid = kValid;
  answer(id, 0, &out, sizeof out);
}

void Fuse::list(uint64_t id, uint64_t offset, uint32_t size) {
  std::vector<char> out;
  for (uint64_t i = offset; i < files_.files().size() + 2; i++) {
    const std::string name = i == 0 ? "." : i == 1 ? ".." : files_.files()[i - 2].name;
    fuse_dirent entry{};
    entry.ino = i < 2 ? FUSE_ROOT_ID : kFirst + i - 2;
    entry.off = i + 1;
    entry.namelen = static_cast<uint32_t>(name.size());
    entry.type = (i < 2 ? S_IFDIR : S_IFREG) >> 12;
    std::vector<char> one(FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + name.size()));
    std::memcpy(one.data(), &entry, FUSE_NAME_OFFSET);
    std::memcpy(one.data() + FUSE_NAME_OFFSET, name.data(), name.size());
    if (out.size() + one.size() > size) break;
    out.insert(out.end(), one.begin(), one.end());
  }
  answer(id, 0, out.data(), out.size());
}

void Fuse::answer_read(const Waiting& reader) {
  const int n = files_.read(reader.file, 0, reader.size, data_.data());
  if (n == DeviceFiles::kLater) {
    if (!reader.blocks) return answer(reader.id, -EAGAIN);
    readers_.push_back(reader);
  } else {
    answer(reader.id, std::min(n, 0), data_.data(), static_cast<size_t>(std::max(n, 0)));
  }
}

void Fuse::wake(size_t file) {
  const auto polls = std::exchange(polls_, {});
  for (const Waiting& poll : polls) {
    if (poll.file != file) {
      polls_.push_back(poll);
      continue;
    }
    const fuse_notify_poll_wakeup_out out = {poll.id};
    fuse_out_header header{};
    header.error = FUSE_NOTIFY_POLL;
    header.len = sizeof header + sizeof out;
    iovec parts[2] = {{&header, sizeof header}, {const_cast<fuse_notify_poll_wakeup_out*>(&out), sizeof out}};
    if (writev(fd_, parts, 2) < 0) continue;  // nobody polls any more
  }
  for (const Waiting& reader : std::exchange(readers_, {})) answer_read(reader);
}

void Fuse::handle(const char* request) {
  fuse_in_header in;
  std::memcpy(&in, request, sizeof in);
  const size_t file = in.nodeid - kFirst;
  switch (in.opcode) {
    case FUSE_INIT: {
      fuse_init_out out{};
      out.major = FUSE_KERNEL_VERSION;
      out.minor = FUSE_KERNEL_MINOR_VERSION;
      const auto asked = body<fuse_init_in>(request);
      out.max_readahead = asked.max_readahead;
      out.flags = asked.flags & (FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_MAX_PAGES);
      out.max_background = 16;
      out.congestion_threshold = 12;
      out.max_write = kMostBytes;
      out.max_pages = kMostBytes / kPage;
      out.time_gran = 1;
      return answer(in.unique, 0, &out, sizeof out);
    }
    case FUSE_LOOKUP:
      return in.nodeid == FUSE_ROOT_ID ? lookup(in.unique, request + sizeof in) : answer(in.unique, -ENOENT);
    case FUSE_GETATTR:
    case FUSE_SETATTR:  // O_TRUNC and the like: the files stay as they are
      return attributes(in.unique, in.nodeid);
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
      fuse_open_out out{};
      out.open_flags = in.opcode == FUSE_OPEN ? FOPEN_DIRECT_IO : 0u;
      return answer(in.unique, 0, &out, sizeof out);
    }
    case FUSE_READDIR: {
      const auto read = body<fuse_read_in>(request);
      return list(in.unique, read.offset, read.size);
    }
    case FUSE_READ: {
      const auto read = body<fuse_read_in>(request);
      const int n = files_.read(file, read.offset, std::min(read.size, kMostBytes), data_.data());
      if (n != DeviceFiles::kLater)
        return answer(in.unique, std::min(n, 0), data_.data(), static_cast<size_t>(std::max(n, 0)));
      if (read.flags & O_NONBLOCK) return answer(in.unique, -EAGAIN);
      readers_.push_back({in.unique, file, true, read.size});
      return;
    }
    case FUSE_WRITE: {
      const auto write = body<fuse_write_in>(request);
      const int n = files_.write(file, write.offset, request + sizeof in + sizeof write, write.size);
      const fuse_write_out out = {static_cast<uint32_t>(std::max(n, 0)), 0};
      return n < 0 ? answer(in.unique, n) : answer(in.unique, 0, &out, sizeof out);
    }
    case FUSE_POLL: {
      const auto poll = body<fuse_poll_in>(request);
      fuse_poll_out out{};
      out.revents = POLLOUT | (files_.readable(file) ? POLLIN : 0);
      out.revents &= poll.events;
      if (!(out.revents & POLLIN) && (poll.flags & FUSE_POLL_SCHEDULE_NOTIFY)) {
        std::erase_if(polls_, [&](const Waiting& p) { return p.id == poll.kh; });
        polls_.push_back({poll.kh, file, false, 0});
      }
      return answer(in.unique, 0, &out, sizeof out);
    }
    case FUSE_INTERRUPT: {  // a signal hit someone who waits in read
      const auto asked = body<fuse_interrupt_in>(request);
      if (std::erase_if(readers_, [&](const Waiting& r) { return r.id == asked.unique; })) answer(asked.unique, -EINTR);
      return;
    }
    case FUSE_STATFS: {
      fuse_statfs_out out{};
      out.st.bsize = out.st.frsize = kPage;
      out.st.namelen = 255;
      return answer(in.unique, 0, &out, sizeof out);
    }
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_FLUSH:
    case FUSE_FSYNC:
    case FUSE_DESTROY:
      return answer(in.unique, 0);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
      return;  // these want no answer
    default:
      return answer(in.unique, -ENOSYS);
  }
}
