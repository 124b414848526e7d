/* See event_record.h. */
#include "src/report/event_record.h"

void fsdp_record_table_init(fsdp_record_table *table)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82F63B78u & (0u - (crc & 1))); /* Castagnoli, reflected */
        table->row[i] = crc;
    }
}

/* TFRecord masks its checksums, because the CRC of data that contains CRCs detects fewer errors. */
uint32_t fsdp_record_sum(const fsdp_record_table *table, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint32_t crc = ~0u;
    for (size_t i = 0; i < bytes; i++)
        crc = crc >> 8 ^ table->row[(crc ^ p[i]) & 255];
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}
