// A folder served by this process: the kernel's side of FUSE, without libfuse.
#pragma once
#include <string>

// Mounts and gives the connection's file descriptor: by mount(2), and where that is not permitted by fusermount3. A
// mount that a dead server left there is removed first. Throws std::runtime_error.
int mount_fuse(const std::string& folder);
// Also when files are open in it.
void unmount_fuse(const std::string& folder);
