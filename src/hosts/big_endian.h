/* Encodes and decodes the numbers of 4 bytes in the messages between launchers. */
#pragma once
#include <stdint.h>

/* Write `value` to `bytes` [4], the most significant byte first. */
static inline void fsdp_put_big_endian(void *bytes, uint32_t value)
{
    uint8_t *at = bytes;
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* Read the number at `bytes` [4]. The bytes need not be aligned. */
static inline uint32_t fsdp_get_big_endian(const void *bytes)
{
    const uint8_t *at = bytes;
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}
