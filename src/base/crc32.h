/* CRC-32 of zip files (polynomial 0xEDB88320, reflected). */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* A table in the caller's memory, which fsdp_crc32_init() fills. */
typedef struct fsdp_crc32_table {
    uint32_t rows[8][256];
} fsdp_crc32_table;

void fsdp_crc32_init(fsdp_crc32_table *table);
/* Return the checksum of earlier bytes followed by `data`. `crc` is the checksum of the earlier
 * bytes, or 0 if there are none. */
uint32_t fsdp_crc32(const fsdp_crc32_table *table, uint32_t crc, const void *data, size_t bytes);
