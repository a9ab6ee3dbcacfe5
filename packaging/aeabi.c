// What a compiler for ARM calls instead of memcpy and memset ("Run-time ABI for the Arm Architecture", 4.3.4). A C library has these
// functions, GCC's own library has not. Each needs only what GCC itself wants of a program without a C library.
#include <stddef.h>

void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);

#define WEAK __attribute__((weak))
#define COPY(name)                                          \
    WEAK void name(void *to, const void *from, size_t size) \
    {                                                       \
        memcpy(to, from, size);                             \
    }
#define CLEAR(name)                       \
    WEAK void name(void *to, size_t size) \
    {                                     \
        memset(to, 0, size);              \
    }
#define SET(name)                                   \
    WEAK void name(void *to, size_t size, int byte) \
    {                                               \
        memset(to, byte, size);                     \
    }

COPY(__aeabi_memcpy)
COPY(__aeabi_memcpy4)
COPY(__aeabi_memcpy8)
CLEAR(__aeabi_memclr)
CLEAR(__aeabi_memclr4)
CLEAR(__aeabi_memclr8)
SET(__aeabi_memset)
SET(__aeabi_memset4)
SET(__aeabi_memset8)
