/* The records of event files: their checksums, and the field numbers of the protobuf messages in
 * them. Shared by the writer (event_file.c) and the reader (event_reader.c). */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* A record is: length (8 bytes), masked checksum of these 8 bytes (4), data, masked checksum of the
 * data (4); all numbers are little-endian. */
enum {
    FSDP_RECORD_HEAD_BYTES = 12,
    FSDP_RECORD_SUM_BYTES = 4
};

/* Types of protobuf fields. */
enum {
    FSDP_WIRE_VARINT = 0,
    FSDP_WIRE_64 = 1,
    FSDP_WIRE_BYTES = 2,
    FSDP_WIRE_32 = 5
};

/* Field numbers, and values of enums. tensorflow/core/util/event.proto and
 * tensorflow/core/framework/{summary,histogram,tensor,tensor_shape}.proto define them. */
enum {
    FSDP_EVENT_WALL_TIME = 1,
    FSDP_EVENT_STEP = 2,
    FSDP_EVENT_FILE_VERSION = 3,
    FSDP_EVENT_SUMMARY = 5,
    FSDP_EVENT_SESSION_LOG = 7,
    FSDP_SESSION_STATUS = 1,
    FSDP_SESSION_START = 1,
    FSDP_SUMMARY_VALUE = 1,
    FSDP_VALUE_TAG = 1,
    FSDP_VALUE_SIMPLE = 2,
    FSDP_VALUE_HISTOGRAM = 5,
    FSDP_VALUE_TENSOR = 8,
    FSDP_VALUE_METADATA = 9,
    FSDP_HISTOGRAM_MIN = 1,
    FSDP_HISTOGRAM_MAX = 2,
    FSDP_HISTOGRAM_NUM = 3,
    FSDP_HISTOGRAM_SUM = 4,
    FSDP_HISTOGRAM_SUM_SQUARES = 5,
    FSDP_HISTOGRAM_LIMIT = 6,
    FSDP_HISTOGRAM_BUCKET = 7,
    FSDP_METADATA_PLUGIN = 1,
    FSDP_PLUGIN_NAME = 1,
    FSDP_TENSOR_DTYPE = 1,
    FSDP_TENSOR_SHAPE = 2,
    FSDP_TENSOR_CONTENT = 4,
    FSDP_TENSOR_FLOATS = 5,
    FSDP_TENSOR_STRINGS = 8,
    FSDP_SHAPE_DIM = 2,
    FSDP_DIM_SIZE = 1,
    FSDP_DTYPE_OF_FLOATS = 1,
    FSDP_DTYPE_OF_STRINGS = 7
};

/* A table for the computation of checksums. The caller provides the memory of the table, and
 * fsdp_record_table_init() fills it. */
typedef struct fsdp_record_table {
    uint32_t row[256];
} fsdp_record_table;

void fsdp_record_table_init(fsdp_record_table *table);
/* Return the masked CRC-32C of `data` [bytes]. */
uint32_t fsdp_record_sum(const fsdp_record_table *table, const void *data, size_t bytes);
