/* libFuzzer over event files of TensorBoard: `make fuzz FUZZ_S=60`. The input is read as it is, and
 * again as the data of one record whose checksums are right, because few inputs would pass them. */
#include <stdlib.h>
#include <string.h>

#include "src/report/event_reader.h"
#include "src/report/event_record.h"
#include "tests/fuzz/folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_events(const void *data, size_t bytes)
{
    char path[64];
    fsdp_metrics_curves curves = {0};
    fuzz_put("events", data, bytes);
    snprintf(path, sizeof path, "%s/events", fuzz_folder());
    if (fsdp_event_file_read(path, &curves) != FSDP_OK && !*fsdp_last_error())
        abort();
    fsdp_metrics_curves_fini(&curves);
}

static void put_number(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fsdp_record_table table;
    uint8_t *record = malloc(bytes + FSDP_RECORD_HEAD_BYTES + FSDP_RECORD_SUM_BYTES);
    if (!record)
        abort();
    fsdp_record_table_init(&table);
    put_number(record, bytes, 8);
    put_number(record + 8, fsdp_record_sum(&table, record, 8), FSDP_RECORD_SUM_BYTES);
    if (bytes)
        memcpy(record + FSDP_RECORD_HEAD_BYTES, data, bytes);
    put_number(record + FSDP_RECORD_HEAD_BYTES + bytes,
               fsdp_record_sum(&table, record + FSDP_RECORD_HEAD_BYTES, bytes),
               FSDP_RECORD_SUM_BYTES);
    read_events(data, bytes);
    read_events(record, bytes + FSDP_RECORD_HEAD_BYTES + FSDP_RECORD_SUM_BYTES);
    free(record);
    return 0;
}
