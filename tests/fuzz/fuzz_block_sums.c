/* libFuzzer over the checksums of data files of DCP: `make fuzz FUZZ_S=60`. The input is
 * data.crc32, for data of the size that it says. It is read as it is, and again with its own
 * checksum corrected, because few inputs would pass it. If it loads, reading must find damage
 * exactly in blocks with another checksum. */
#include <stdlib.h>

#include "src/dcp/block_sums.h"
#include "tests/fuzz/folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum {
    MOST_DATA_BYTES = 8192,
    SIZE_AT =
        8, /* offset of the data's size in the file; the block size and the checksums follow */
    BLOCK_AT = 16,
    SUMS_AT = 20,
    SUM_BYTES = 4
};

static uint64_t number_at(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i > 0; i--)
        value = value << 8 | at[i - 1];
    return value;
}

static void check_block(fsdp_block_check *check, const fsdp_crc32_table *table, const uint8_t *sums,
                        const fsdp_mapping *data, uint64_t begin, uint64_t size)
{
    const uint64_t left = data->bytes - begin, bytes = left < size ? left : size;
    const bool same = fsdp_crc32(table, 0, data->data + begin, (size_t)bytes) ==
                      number_at(sums + begin / size * SUM_BYTES, SUM_BYTES);
    for (uint64_t at = begin; at<begin + bytes; at += bytes> 1 ? bytes - 1 : 1)
        if ((fsdp_block_check_range(check, at, 1) == FSDP_OK) != same)
            abort();
}

static void read_sums(const fsdp_crc32_table *table, const uint8_t *text, size_t bytes,
                      const fsdp_mapping *data)
{
    char path[64];
    fsdp_block_check *check;
    fuzz_put("data.crc32", text, bytes);
    snprintf(path, sizeof path, "%s/data.distcp", fuzz_folder());
    if (fsdp_block_check_open(path, data, &check) != FSDP_OK)
        return;
    const uint64_t size = number_at(text + BLOCK_AT, 4);
    for (uint64_t begin = 0; begin < data->bytes; begin += size)
        check_block(check, table, text + SUMS_AT, data, begin, size);
    fsdp_block_check_close(check);
}

static void put_checksum(const fsdp_crc32_table *table, uint8_t *text, size_t bytes)
{
    const uint32_t sum = fsdp_crc32(table, 0, text, bytes - SUM_BYTES);
    for (int i = 0; i < SUM_BYTES; i++)
        text[bytes - SUM_BYTES + (size_t)i] = (uint8_t)(sum >> 8 * i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fsdp_crc32_table table;
    const uint64_t said = bytes >= BLOCK_AT ? number_at(data + SIZE_AT, 8) : 0;
    fsdp_mapping file = {.bytes = said < MOST_DATA_BYTES ? (size_t)said : MOST_DATA_BYTES};
    uint8_t *values = malloc(file.bytes + !file.bytes), *copy = malloc(bytes + SUM_BYTES);
    if (!values || !copy)
        abort();
    for (size_t i = 0; i < file.bytes; i++)
        values[i] = (uint8_t)(i * 31);
    file.data = values;
    fsdp_crc32_init(&table);
    read_sums(&table, data, bytes, &file);
    if (bytes >= SUM_BYTES) {
        memcpy(copy, data, bytes);
        put_checksum(&table, copy, bytes);
        read_sums(&table, copy, bytes, &file);
    }
    free(values);
    free(copy);
    return 0;
}
