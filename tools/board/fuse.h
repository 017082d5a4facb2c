// As much of the FUSE protocol (linux/fuse.h) as one folder of device files needs.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

// What the files do. An answer below 0 is an errno.
class DeviceFiles {
 public:
  virtual ~DeviceFiles() = default;
  struct File {
    std::string name;
    uint64_t size;
    uint32_t mode;  // permissions
  };
  virtual const std::vector<File>& files() const = 0;
  static constexpr int kLater = 1 << 30;  // read: answered by Fuse::answer_read, some time
  virtual int read(size_t file, uint64_t offset, uint32_t size, char* to) = 0;
  virtual int write(size_t file, uint64_t offset, const char* from, uint32_t size) = 0;
  virtual bool readable(size_t file) = 0;
};

class Fuse {
 public:
  static constexpr uint32_t kMostBytes = 1 << 20;  // of one read or write

  Fuse(int fd, DeviceFiles& files);
  // Takes one request, if there is one. False: the folder was unmounted.
  bool serve();
  // The file became readable: whoever polls it or waits in read hears of it.
  void wake(size_t file);
  int fd() const { return fd_; }

 private:
  struct Waiting {
    uint64_t id;  // of the request, or of the poll
    size_t file;
    bool blocks;  // a reader that did not ask for O_NONBLOCK
    uint32_t size;
  };
  void handle(const char* request);
  void answer(uint64_t id, int error, const void* data = nullptr, size_t size = 0);
  void answer_read(const Waiting& reader);
  void lookup(uint64_t id, const char* name);
  void attributes(uint64_t id, uint64_t node);
  void list(uint64_t id, uint64_t offset, uint32_t size);
  bool attributes_of(uint64_t node, struct fuse_attr* out) const;

  const int fd_;
  DeviceFiles& files_;
  std::vector<char> buffer_, data_;
  std::vector<Waiting> readers_, polls_;
};
