// Calls functions of a shared library for a program that can't load it: on another machine's instructions, under qemu.
//
// Reads requests from its standard input and answers on its standard output, all numbers as int64:
//   'c' name, buffers, arguments: calls name(arguments); answers with the result and all buffers as they are then.
//   'r' address, size: answers with the bytes there.    'w' address, bytes: puts them there; answers nothing.
// A name or bytes are a size and the bytes. A buffer is bytes, and a list of (offset, buffer): at that offset stands the
// address of the other one. An argument is 0 and a number, or 1 and a buffer.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

void read(void* to, size_t size) {
  if (size > 0 && std::fread(to, 1, size, stdin) != size) std::exit(0);  // who asks has gone
}

int64_t number() {
  int64_t value = 0;
  read(&value, sizeof value);
  return value;
}

std::string bytes() {
  std::string value(number(), '\0');
  read(&value[0], value.size());
  return value;
}

void answer(const void* data, size_t size) { std::fwrite(data, 1, size, stdout); }

int call(void* library) {
  using Function = int64_t (*)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                               int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t);
  const std::string name = bytes();
  std::vector<std::string> buffers(number());
  std::vector<int64_t> places;
  for (size_t i = 0; i < buffers.size(); ++i) {
    buffers[i] = bytes();
    for (int64_t n = number(); n > 0; --n) {
      places.push_back(static_cast<int64_t>(i));
      places.push_back(number());
      places.push_back(number());
    }
  }
  for (size_t i = 0; i < places.size(); i += 3) {
    const char* address = buffers[places[i + 2]].data();
    std::memcpy(&buffers[places[i]][places[i + 1]], &address, sizeof address);
  }
  int64_t a[17] = {};
  const int64_t count = number();
  for (int64_t i = 0; i < count; ++i) {
    const bool is_buffer = number() == 1;
    a[i] = number();
    if (is_buffer) a[i] = reinterpret_cast<int64_t>(buffers[a[i]].data());
  }
  const auto function = reinterpret_cast<Function>(dlsym(library, name.c_str()));
  if (function == nullptr) return 1;
  const int64_t result = function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13],
                                  a[14], a[15], a[16]);
  answer(&result, sizeof result);
  for (const std::string& each : buffers) answer(each.data(), each.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  void* library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : nullptr;
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "caller: one argument is needed, the library");
    return 1;
  }
  for (char what = 0;;) {
    read(&what, 1);
    if (what == 'c') {
      if (call(library) != 0) return 1;
    } else if (what == 'r') {
      const int64_t address = number();
      answer(reinterpret_cast<const void*>(address), number());
    } else {
      const int64_t address = number();
      const std::string value = bytes();
      std::memcpy(reinterpret_cast<void*>(address), value.data(), value.size());
    }
    std::fflush(stdout);
  }
}
