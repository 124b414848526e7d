/* CRC-32 of zip files (polynomial 0xEDB88320, reflected). */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Filled by fsdp_crc32_init(); memory of the caller. */
typedef struct fsdp_crc32_table {
    uint32_t rows[8][256];
} fsdp_crc32_table;

void fsdp_crc32_init(fsdp_crc32_table *table);
/* The checksum of `data` appended to earlier bytes whose checksum is `crc` (0 if there are
 * none). */
uint32_t fsdp_crc32(const fsdp_crc32_table *table, uint32_t crc, const void *data, size_t bytes);
