/* The metadata of Arrow's IPC format: FlatBuffers that describe schemas, record batches and
 * dictionary batches. Their tables are those of Arrow's Schema.fbs, Message.fbs and File.fbs.
 *
 * metadata.cc implements these functions with the headers of FlatBuffers, a C++ library. The
 * functions have no C++ types in their declarations, and throw no exceptions. Every table, vector
 * and string is verified before it is read. metadata_none.c is for builds without FlatBuffers. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FSDP_ARROW_MAX_DEPTH = 32,        /* maximum depth of nested types */
    FSDP_ARROW_MAX_FIELDS = 65536,    /* maximum number of fields of a schema, with nested ones */
    FSDP_ARROW_MAX_NAME = 65535,      /* maximum length of a field's name, in bytes */
    FSDP_ARROW_MAX_METADATA = 1 << 28 /* maximum size of the metadata of a message, in bytes */
};

/* The numbers of the types in Schema.fbs. */
typedef enum fsdp_arrow_type {
    FSDP_ARROW_NULL = 1,
    FSDP_ARROW_INT,
    FSDP_ARROW_FLOAT,
    FSDP_ARROW_BINARY,
    FSDP_ARROW_STRING,
    FSDP_ARROW_BOOL,
    FSDP_ARROW_DECIMAL,
    FSDP_ARROW_DATE,
    FSDP_ARROW_TIME,
    FSDP_ARROW_TIMESTAMP,
    FSDP_ARROW_INTERVAL,
    FSDP_ARROW_LIST,
    FSDP_ARROW_STRUCT,
    FSDP_ARROW_UNION,
    FSDP_ARROW_FIXED_SIZE_BINARY,
    FSDP_ARROW_FIXED_SIZE_LIST,
    FSDP_ARROW_MAP,
    FSDP_ARROW_DURATION,
    FSDP_ARROW_LARGE_BINARY,
    FSDP_ARROW_LARGE_STRING,
    FSDP_ARROW_LARGE_LIST,
    FSDP_ARROW_RUN_END_ENCODED,
    FSDP_ARROW_BINARY_VIEW,
    FSDP_ARROW_STRING_VIEW,
    FSDP_ARROW_LIST_VIEW,
    FSDP_ARROW_LARGE_LIST_VIEW,
} fsdp_arrow_type;

/* Return the name of a type, such as "large_list", which is a static text. */
const char *fsdp_arrow_type_name(fsdp_arrow_type type);

/* A field of a schema, or a child of such a field. */
typedef struct fsdp_arrow_field {
    const char *name; /* well-formed UTF-8, "" if the field has no name; owned by the schema */
    fsdp_arrow_type type;
    int bits;       /* INT: 8, 16, 32 or 64; FLOAT: 16, 32 or 64; else 0 */
    bool is_signed; /* INT */
    bool is_dense;  /* UNION */
    bool is_json;   /* STRING, LARGE_STRING: the extension type arrow.json, whose texts are JSON */
    int32_t size;   /* FIXED_SIZE_LIST: entries of a list, at least 0 */
    bool has_dictionary; /* values are indices into a dictionary of type `type` */
    int64_t dictionary_id;
    int index_bits; /* width of dictionary indices: 8, 16, 32 or 64 */
    bool index_is_signed;
    uint32_t n_children;
    /* Index of the last descendant of this field, plus 1. The first child of the field, if it has
     * one, is the next field in the array. */
    uint32_t end;
} fsdp_arrow_field;

typedef struct fsdp_arrow_schema {
    fsdp_arrow_field *fields; /* [n_fields]; parents come before their children */
    size_t n_fields;
    const char *huggingface; /* the value of the key "huggingface" in the schema's metadata, which
                                is JSON; NULL: none */
    void *bytes;             /* the memory that has the names and `huggingface`; owned */
} fsdp_arrow_schema;

void fsdp_arrow_schema_fini(fsdp_arrow_schema *schema);

typedef struct fsdp_arrow_node {
    int64_t length, null_count; /* number of values of one field in a batch, and of nulls in them */
} fsdp_arrow_node;

typedef struct fsdp_arrow_range {
    int64_t offset, length; /* bytes of the body */
} fsdp_arrow_range;

typedef enum fsdp_arrow_codec {
    FSDP_ARROW_UNCOMPRESSED,
    FSDP_ARROW_LZ4_FRAME,
    FSDP_ARROW_ZSTD,
} fsdp_arrow_codec;

typedef enum fsdp_arrow_header {
    FSDP_ARROW_SCHEMA = 1,
    FSDP_ARROW_DICTIONARY_BATCH,
    FSDP_ARROW_RECORD_BATCH,
} fsdp_arrow_header;

/* What fsdp_arrow_message_parse() reads from the metadata of a message. Initialize it with {0}. */
typedef struct fsdp_arrow_message {
    fsdp_arrow_header header;
    int version;               /* version of the format: 3 (V4) or 4 (V5) */
    int64_t body_bytes;        /* size of the body that follows the metadata, at least 0 */
    int64_t rows;              /* rows of the batch, at least 0 */
    fsdp_arrow_node *nodes;    /* [n_nodes], owned; their values are not checked */
    fsdp_arrow_range *buffers; /* [n_buffers], owned; their values are not checked */
    int64_t *variadic; /* [n_variadic], owned: the number of data buffers of each BINARY_VIEW and
                          STRING_VIEW field; their values are not checked */
    size_t n_nodes, n_buffers, n_variadic;
    fsdp_arrow_codec codec;
    int64_t dictionary_id; /* DICTIONARY_BATCH */
    bool is_delta;         /* DICTIONARY_BATCH: its values are appended to the dictionary */
} fsdp_arrow_message;

void fsdp_arrow_message_fini(fsdp_arrow_message *message);

/* Parse the metadata of a message. `data` [bytes] may have any alignment. If the message is a
 * schema, *schema is set; `schema` may be NULL if the caller does not want it. Returns
 * FSDP_ERR_FORMAT or FSDP_ERR_UNSUPPORTED. The message of the error does not name the file. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_message_parse(const void *data, size_t bytes,
                                                     fsdp_arrow_message *message,
                                                     fsdp_arrow_schema *schema);

/* The footer of a file of the IPC file format, with the offsets of messages in the file. */
typedef struct fsdp_arrow_footer {
    int64_t *dictionaries, *batches; /* [n_dictionaries], [n_batches], owned; not checked */
    size_t n_dictionaries, n_batches;
} fsdp_arrow_footer;

void fsdp_arrow_footer_fini(fsdp_arrow_footer *footer);
FSDP_MUST_CHECK fsdp_status fsdp_arrow_footer_parse(const void *data, size_t bytes,
                                                    fsdp_arrow_footer *footer,
                                                    fsdp_arrow_schema *schema);

/* ---- writing ---- */

/* Make the metadata of a message with a schema. `fields` are as in fsdp_arrow_schema, of the types
 * INT, FLOAT, BOOL, STRING and LIST, without dictionaries. `huggingface` is the value of the key
 * "huggingface" in the schema's metadata; NULL: no such key. The caller owns *data and frees it
 * with fsdp_free(). */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_schema_write(const fsdp_arrow_field *fields, size_t n_fields,
                                                    const char *huggingface, void **data,
                                                    size_t *bytes);
/* Make the metadata of a record batch without compression. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_batch_write(const fsdp_arrow_message *message, void **data,
                                                   size_t *bytes);

#ifdef __cplusplus
}
#endif
