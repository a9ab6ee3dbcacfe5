// The functions that every compiler calls implicitly.
#include <stddef.h>
#include <stdint.h>

void *memcpy(void *to, const void *from, size_t size);
void *memmove(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);
int memcmp(const void *a, const void *b, size_t size);

void *memcpy(void *to, const void *from, size_t size)
{
    char *t = to;
    const char *f = from;
    if (((uintptr_t)t | (uintptr_t)f) % 4 == 0)
        for (; size >= 4; size -= 4, t += 4, f += 4)
            *(uint32_t *)t = *(const uint32_t *)f;
    while (size-- > 0)
        *t++ = *f++;
    return to;
}

void *memmove(void *to, const void *from, size_t size)
{
    if ((uintptr_t)to - (uintptr_t)from >= size)
        return memcpy(to, from, size);
    for (char *t = (char *)to + size, *f = (char *)from + size; t > (char *)to;)
        *--t = *--f;
    return to;
}

void *memset(void *to, int byte, size_t size)
{
    char *t = to;
    if ((uintptr_t)t % 4 == 0)
        for (; size >= 4; size -= 4, t += 4)
            *(uint32_t *)t = (byte & 0xffu) * 0x01010101u;
    while (size-- > 0)
        *t++ = (char)byte;
    return to;
}

int memcmp(const void *a, const void *b, size_t size)
{
    const unsigned char *x = a, *y = b;
    for (; size > 0; size--, x++, y++)
        if (*x != *y)
            return *x - *y;
    return 0;
}
