// What compilers and processors differ in.
#pragma once

#include <cstdint>

// One binary for all x86-64 machines; the loader picks the widest vectors the processor has.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDEST
#endif

#if defined(__GNUC__)
#define FETCH(address) __builtin_prefetch(reinterpret_cast<const void*>(address), 0, 3)
#else
#define FETCH(address) ((void)(address))
#endif

constexpr uintptr_t kAhead = 8192;  // bytes: further than the processor fetches by itself, which stops at each page
