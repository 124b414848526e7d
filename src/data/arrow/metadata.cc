/* Implements metadata.h with the headers of FlatBuffers. A table's fields are found by their
 * offsets in its vtable: field i of a table in the .fbs files, counted from 0, has the offset
 * 4 + 2 * i. A union has two fields: the number of its type, and the table. */
#include "src/data/arrow/metadata.h"

#include <cstring>
#include <exception>
#include <new>
#include <utility>
#include <vector>

#include <flatbuffers/flatbuffers.h>

extern "C" {
#include "src/base/alloc.h"
#include "src/text/chars/utf8.h"
}

namespace
{
using flatbuffers::Offset;
using flatbuffers::String;
using flatbuffers::Table;
using flatbuffers::Vector;
using flatbuffers::Verifier;
using flatbuffers::voffset_t;
using Tables = Vector<Offset<Table>>;

/* Offsets in the vtables of the tables that are read or written. */
namespace at
{
enum Message : voffset_t {
    VERSION = 4,
    HEADER_TYPE = 6,
    HEADER = 8,
    BODY_LENGTH = 10
};
enum RecordBatch : voffset_t {
    LENGTH = 4,
    NODES = 6,
    BUFFERS = 8,
    COMPRESSION = 10,
    VARIADIC_BUFFER_COUNTS = 12
};
enum BodyCompression : voffset_t {
    CODEC = 4,
    METHOD = 6
};
enum DictionaryBatch : voffset_t {
    ID = 4,
    DATA = 6,
    IS_DELTA = 8
};
enum Schema : voffset_t {
    ENDIANNESS = 4,
    FIELDS = 6,
    SCHEMA_METADATA = 8
};
enum Field : voffset_t {
    NAME = 4,
    NULLABLE = 6,
    TYPE_TYPE = 8,
    TYPE = 10,
    DICTIONARY = 12,
    CHILDREN = 14,
    FIELD_METADATA = 16
};
enum KeyValue : voffset_t {
    KEY = 4,
    VALUE = 6
};
enum DictionaryEncoding : voffset_t {
    DICTIONARY_ID = 4,
    INDEX_TYPE = 6
};
enum Int : voffset_t {
    BIT_WIDTH = 4,
    IS_SIGNED = 6
};
enum FloatingPoint : voffset_t {
    PRECISION = 4
};
enum FixedSizeList : voffset_t {
    LIST_SIZE = 4
};
enum Union : voffset_t {
    MODE = 4
};
enum Footer : voffset_t {
    SCHEMA = 6,
    DICTIONARIES = 8,
    RECORD_BATCHES = 10
};
} // namespace at

enum : uint32_t {
    MAX_DEPTH =
        FSDP_ARROW_MAX_DEPTH + 16, /* depth of tables: fields are inside a schema and a message */
    MAX_TABLES = 4 * FSDP_ARROW_MAX_FIELDS
};
enum : int16_t {
    V4 = 3,
    V5 = 4
};

/* The structs of the .fbs files. They are little endian, as are the machines that this runs on. */
struct Block {
    int64_t offset;
    int32_t metadata_length;
    int32_t padding;
    int64_t body_length;
};
static_assert(sizeof(Block) == 24, "as in File.fbs");
static_assert(sizeof(fsdp_arrow_node) == 16 && sizeof(fsdp_arrow_range) == 16,
              "FieldNode and Buffer, as in Message.fbs");

/* Call `body` and return its status. If it throws an exception, return an error instead. */
template <typename Body> fsdp_status guarded(Body body) noexcept
{
    try {
        return body();
    } catch (const std::bad_alloc &) {
        return fsdp_error_nomem();
    } catch (const std::exception &e) {
        return fsdp_error(FSDP_ERR_FORMAT, "Arrow metadata: %s", e.what());
    } catch (...) {
        return fsdp_error(FSDP_ERR_FORMAT, "Arrow metadata: failed");
    }
}

fsdp_status damaged()
{
    return fsdp_error(FSDP_ERR_FORMAT, "the metadata of the message are damaged");
}

/* ---- verification ---- */

/* VerifyField() of FlatBuffers 2.0.0 has no argument for the alignment; later versions have one. */
template <typename T>
auto verify_scalar(const Verifier &v, const Table *t, voffset_t field, int)
    -> decltype(t->VerifyField<T>(v, field, sizeof(T)))
{
    return t->VerifyField<T>(v, field, sizeof(T));
}
template <typename T>
auto verify_scalar(const Verifier &v, const Table *t, voffset_t field, long)
    -> decltype(t->VerifyField<T>(v, field))
{
    return t->VerifyField<T>(v, field);
}
/* Return true if `field` is absent, or if a number of type T can be read there. */
template <typename T> bool verify(const Verifier &v, const Table *t, voffset_t field)
{
    return verify_scalar<T>(v, t, field, 0);
}

/* Return the table, vector or string at `field`; nullptr if the field is absent. */
template <typename T> const T *pointer(const Table *t, voffset_t field)
{
    return t->GetPointer<const T *>(field);
}

bool verify_string(const Verifier &v, const Table *t, voffset_t field)
{
    return t->VerifyOffset(v, field) && v.VerifyString(pointer<String>(t, field));
}

template <typename T> bool verify_vector(const Verifier &v, const Table *t, voffset_t field)
{
    return t->VerifyOffset(v, field) && v.VerifyVector(pointer<Vector<T>>(t, field));
}

/* Verify a vector of structs of type T. Its structs need not be aligned, so they are copied before
 * they are read. */
template <typename T> bool verify_structs(const Verifier &v, const Table *t, voffset_t field)
{
    if (!t->VerifyOffset(v, field))
        return false;
    const auto *vector = pointer<uint8_t>(t, field);
    return !vector || v.VerifyVectorOrString(vector, sizeof(T));
}

/* Verify the table at `field` by calling one(). The table may be absent. */
template <typename One> bool verify_table(Verifier &v, const Table *t, voffset_t field, One one)
{
    if (!t->VerifyOffset(v, field))
        return false;
    const auto *table = pointer<Table>(t, field);
    return !table || (table->VerifyTableStart(v) && one(v, table) && v.EndTable());
}

template <typename One> bool verify_tables(Verifier &v, const Table *t, voffset_t field, One one)
{
    if (!verify_vector<Offset<Table>>(v, t, field))
        return false;
    const auto *tables = pointer<Tables>(t, field);
    for (flatbuffers::uoffset_t i = 0; tables && i < tables->size(); i++) {
        const Table *table = tables->Get(i);
        if (!table->VerifyTableStart(v) || !one(v, table) || !v.EndTable())
            return false;
    }
    return true;
}

bool verify_key_value(Verifier &v, const Table *t)
{
    return verify_string(v, t, at::KEY) && verify_string(v, t, at::VALUE);
}

bool verify_int(Verifier &v, const Table *t)
{
    return verify<int32_t>(v, t, at::BIT_WIDTH) && verify<uint8_t>(v, t, at::IS_SIGNED);
}

bool verify_encoding(Verifier &v, const Table *t)
{
    return verify<int64_t>(v, t, at::DICTIONARY_ID) &&
           verify_table(v, t, at::INDEX_TYPE, verify_int);
}

/* Verify those fields of a type's table that are read. */
bool verify_type(const Verifier &v, const Table *t, int type)
{
    switch (type) {
    case FSDP_ARROW_INT:
        return verify<int32_t>(v, t, at::BIT_WIDTH) && verify<uint8_t>(v, t, at::IS_SIGNED);
    case FSDP_ARROW_FLOAT:
        return verify<int16_t>(v, t, at::PRECISION);
    case FSDP_ARROW_FIXED_SIZE_LIST:
        return verify<int32_t>(v, t, at::LIST_SIZE);
    case FSDP_ARROW_UNION:
        return verify<int16_t>(v, t, at::MODE);
    default:
        return true;
    }
}

bool verify_field(Verifier &v, const Table *t)
{
    if (!verify<uint8_t>(v, t, at::TYPE_TYPE))
        return false;
    const int type = t->GetField<uint8_t>(at::TYPE_TYPE, 0);
    return verify_string(v, t, at::NAME) &&
           verify_table(
               v, t, at::TYPE,
               [type](Verifier &in, const Table *table) { return verify_type(in, table, type); }) &&
           verify_table(v, t, at::DICTIONARY, verify_encoding) &&
           verify_tables(v, t, at::CHILDREN, verify_field) &&
           verify_tables(v, t, at::FIELD_METADATA, verify_key_value);
}

bool verify_schema(Verifier &v, const Table *t)
{
    return verify<int16_t>(v, t, at::ENDIANNESS) && verify_tables(v, t, at::FIELDS, verify_field) &&
           verify_tables(v, t, at::SCHEMA_METADATA, verify_key_value);
}

bool verify_compression(Verifier &v, const Table *t)
{
    return verify<int8_t>(v, t, at::CODEC) && verify<int8_t>(v, t, at::METHOD);
}

bool verify_batch(Verifier &v, const Table *t)
{
    return verify<int64_t>(v, t, at::LENGTH) && verify_structs<fsdp_arrow_node>(v, t, at::NODES) &&
           verify_structs<fsdp_arrow_range>(v, t, at::BUFFERS) &&
           verify_table(v, t, at::COMPRESSION, verify_compression) &&
           verify_vector<int64_t>(v, t, at::VARIADIC_BUFFER_COUNTS);
}

bool verify_dictionary(Verifier &v, const Table *t)
{
    return verify<int64_t>(v, t, at::ID) && verify_table(v, t, at::DATA, verify_batch) &&
           verify<uint8_t>(v, t, at::IS_DELTA);
}

bool verify_message(Verifier &v, const Table *t)
{
    if (!verify<int16_t>(v, t, at::VERSION) || !verify<uint8_t>(v, t, at::HEADER_TYPE) ||
        !verify<int64_t>(v, t, at::BODY_LENGTH))
        return false;
    switch (t->GetField<uint8_t>(at::HEADER_TYPE, 0)) {
    case FSDP_ARROW_SCHEMA:
        return verify_table(v, t, at::HEADER, verify_schema);
    case FSDP_ARROW_DICTIONARY_BATCH:
        return verify_table(v, t, at::HEADER, verify_dictionary);
    case FSDP_ARROW_RECORD_BATCH:
        return verify_table(v, t, at::HEADER, verify_batch);
    default:
        /* read_header() refuses messages of other types, and does not read their tables. */
        return t->VerifyOffset(v, at::HEADER);
    }
}

bool verify_footer(Verifier &v, const Table *t)
{
    return verify_table(v, t, at::SCHEMA, verify_schema) &&
           verify_structs<Block>(v, t, at::DICTIONARIES) &&
           verify_structs<Block>(v, t, at::RECORD_BATCHES);
}

/* Return the verified root of a FlatBuffer; nullptr if it is damaged. */
template <typename One> const Table *verified_root(const uint8_t *data, size_t bytes, One one)
{
    if (bytes < 8)
        return nullptr;
    Verifier v(data, bytes, MAX_DEPTH, MAX_TABLES);
    if (!v.VerifyOffset(0))
        return nullptr;
    const Table *root = flatbuffers::GetRoot<Table>(data);
    return root->VerifyTableStart(v) && one(v, root) && v.EndTable() ? root : nullptr;
}

/* ---- schemas ---- */

const char *text_of(const Table *t, voffset_t field)
{
    const auto *text = pointer<String>(t, field);
    return text ? text->c_str() : nullptr;
}

/* Return the value of `key` in a vector of KeyValue; nullptr if it is absent. */
const char *find_value(const Table *t, voffset_t field, const char *key)
{
    const auto *pairs = pointer<Tables>(t, field);
    for (flatbuffers::uoffset_t i = 0; pairs && i < pairs->size(); i++) {
        const char *found = text_of(pairs->Get(i), at::KEY);
        if (found && std::strcmp(found, key) == 0)
            return text_of(pairs->Get(i), at::VALUE);
    }
    return nullptr;
}

fsdp_status check_bits(const char *name, const char *what, int bits)
{
    if (bits == 8 || bits == 16 || bits == 32 || bits == 64)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT, "column '%.60s': %s of %d bits", name, what, bits);
}

fsdp_status read_int(const Table *t, const char *name, int *bits, bool *is_signed)
{
    *bits = t->GetField<int32_t>(at::BIT_WIDTH, 0);
    *is_signed = t->GetField<uint8_t>(at::IS_SIGNED, 0) != 0;
    return check_bits(name, "integers", *bits);
}

fsdp_status read_encoding(const Table *encoding, fsdp_arrow_field *f)
{
    const auto *index = pointer<Table>(encoding, at::INDEX_TYPE);
    f->has_dictionary = true;
    f->dictionary_id = encoding->GetField<int64_t>(at::DICTIONARY_ID, 0);
    f->index_bits = 32; /* Schema.fbs: int32 if the type is absent */
    f->index_is_signed = true;
    return index ? read_int(index, f->name, &f->index_bits, &f->index_is_signed) : FSDP_OK;
}

fsdp_status read_type(const Table *type, fsdp_arrow_field *f)
{
    static const int precisions[] = {16, 32, 64};
    switch (f->type) {
    case FSDP_ARROW_INT:
        return read_int(type, f->name, &f->bits, &f->is_signed);
    case FSDP_ARROW_FLOAT: {
        const int precision = type->GetField<int16_t>(at::PRECISION, 0);
        if (precision < 0 || precision > 2)
            return fsdp_error(FSDP_ERR_FORMAT, "column '%.60s': floats of precision %d", f->name,
                              precision);
        f->bits = precisions[precision];
        return FSDP_OK;
    }
    case FSDP_ARROW_FIXED_SIZE_LIST:
        f->size = type->GetField<int32_t>(at::LIST_SIZE, 0);
        return f->size >= 0 ? FSDP_OK
                            : fsdp_error(FSDP_ERR_FORMAT, "column '%.60s': lists of %d entries",
                                         f->name, static_cast<int>(f->size));
    case FSDP_ARROW_UNION:
        f->is_dense = type->GetField<int16_t>(at::MODE, 0) != 0;
        return FSDP_OK;
    default:
        return FSDP_OK;
    }
}

fsdp_status check_children(const fsdp_arrow_field *f)
{
    const bool is_list = f->type == FSDP_ARROW_LIST || f->type == FSDP_ARROW_LARGE_LIST ||
                         f->type == FSDP_ARROW_FIXED_SIZE_LIST || f->type == FSDP_ARROW_LIST_VIEW ||
                         f->type == FSDP_ARROW_LARGE_LIST_VIEW || f->type == FSDP_ARROW_MAP;
    const bool is_nested = is_list || f->type == FSDP_ARROW_STRUCT || f->type == FSDP_ARROW_UNION ||
                           f->type == FSDP_ARROW_RUN_END_ENCODED;
    if ((is_list && f->n_children != 1) || (!is_nested && f->n_children != 0))
        return fsdp_error(FSDP_ERR_FORMAT, "column '%.60s': a %s with %u children", f->name,
                          fsdp_arrow_type_name(f->type), static_cast<unsigned>(f->n_children));
    return FSDP_OK;
}

bool is_extension(const Table *t, const char *name)
{
    const char *found = find_value(t, at::FIELD_METADATA, "ARROW:extension:name");
    return found && std::strcmp(found, name) == 0;
}

fsdp_status read_one(const Table *t, fsdp_arrow_field *f)
{
    const char *name = text_of(t, at::NAME);
    const auto *type = pointer<Table>(t, at::TYPE);
    const auto *encoding = pointer<Table>(t, at::DICTIONARY);
    const int number = t->GetField<uint8_t>(at::TYPE_TYPE, 0);
    f->name = name ? name : "";
    if (std::strlen(f->name) > FSDP_ARROW_MAX_NAME)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "a column whose name has more than %d bytes",
                          static_cast<int>(FSDP_ARROW_MAX_NAME));
    if (fsdp_utf8_valid_length(f->name, std::strlen(f->name)) != std::strlen(f->name))
        return fsdp_error(FSDP_ERR_FORMAT, "the name of a column is not UTF-8");
    if (number < FSDP_ARROW_NULL || number > FSDP_ARROW_LARGE_LIST_VIEW)
        return fsdp_error(number ? FSDP_ERR_UNSUPPORTED : FSDP_ERR_FORMAT,
                          "column '%.60s': a type with the number %d, which this version does not "
                          "know",
                          f->name, number);
    f->type = static_cast<fsdp_arrow_type>(number);
    if (!type)
        return damaged();
    f->is_json = is_extension(t, "arrow.json");
    if (encoding)
        FSDP_TRY(read_encoding(encoding, f));
    FSDP_TRY(read_type(type, f));
    return check_children(f);
}

/* Append a field and its descendants to `fields`. */
fsdp_status read_field(const Table *t, int depth, std::vector<fsdp_arrow_field> &fields)
{
    const size_t index = fields.size();
    const auto *children = pointer<Tables>(t, at::CHILDREN);
    if (depth > FSDP_ARROW_MAX_DEPTH)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "types are nested more than %d deep",
                          static_cast<int>(FSDP_ARROW_MAX_DEPTH));
    if (index >= FSDP_ARROW_MAX_FIELDS)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "more than %d columns",
                          static_cast<int>(FSDP_ARROW_MAX_FIELDS));
    fsdp_arrow_field field{};
    field.n_children = children ? children->size() : 0;
    FSDP_TRY(read_one(t, &field));
    fields.push_back(field);
    for (uint32_t i = 0; i < field.n_children; i++)
        FSDP_TRY(read_field(children->Get(i), depth + 1, fields));
    fields[index].end = static_cast<uint32_t>(fields.size());
    return FSDP_OK;
}

/* Fill *out from a verified schema in `bytes`, which *out then owns. */
fsdp_status read_schema(const Table *t, void *bytes, fsdp_arrow_schema *out)
{
    std::vector<fsdp_arrow_field> fields;
    const auto *columns = pointer<Tables>(t, at::FIELDS);
    if (t->GetField<int16_t>(at::ENDIANNESS, 0) != 0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "big-endian data: pyarrow reads and writes them "
                                                "again in this machine's order");
    for (flatbuffers::uoffset_t i = 0; columns && i < columns->size(); i++)
        FSDP_TRY(read_field(columns->Get(i), 1, fields));
    auto *copy = static_cast<fsdp_arrow_field *>(fsdp_calloc(fields.size(), sizeof *out->fields));
    if (!copy)
        return FSDP_ERR_NOMEM;
    if (!fields.empty())
        std::memcpy(copy, fields.data(), fields.size() * sizeof *copy);
    *out = fsdp_arrow_schema{};
    out->fields = copy;
    out->n_fields = fields.size();
    out->huggingface = find_value(t, at::SCHEMA_METADATA, "huggingface");
    out->bytes = bytes;
    return FSDP_OK;
}

/* ---- messages ---- */

/* Copy a verified vector to memory of fsdp_calloc(). */
template <typename T>
fsdp_status copy_vector(const Table *t, voffset_t field, T **items, size_t *count)
{
    const auto *vector = pointer<Vector<uint8_t>>(t, field);
    *count = vector ? vector->size() : 0;
    *items = static_cast<T *>(fsdp_calloc(*count, sizeof(T)));
    if (!*items)
        return FSDP_ERR_NOMEM;
    if (*count)
        std::memcpy(*items, vector->Data(), *count * sizeof(T));
    return FSDP_OK;
}

fsdp_status read_codec(const Table *t, fsdp_arrow_codec *codec)
{
    const auto *compression = pointer<Table>(t, at::COMPRESSION);
    if (!compression)
        return FSDP_OK;
    const int number = compression->GetField<int8_t>(at::CODEC, 0);
    const int method = compression->GetField<int8_t>(at::METHOD, 0);
    if (number < 0 || number > 1 || method != 0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "compression with codec %d and method %d; LZ4_FRAME (0) and ZSTD (1) of "
                          "each buffer (0) are supported",
                          number, method);
    *codec = number == 0 ? FSDP_ARROW_LZ4_FRAME : FSDP_ARROW_ZSTD;
    return FSDP_OK;
}

fsdp_status read_batch(const Table *t, fsdp_arrow_message *m)
{
    if (!t)
        return damaged();
    m->rows = t->GetField<int64_t>(at::LENGTH, 0);
    if (m->rows < 0)
        return fsdp_error(FSDP_ERR_FORMAT, "a batch of %lld rows", static_cast<long long>(m->rows));
    FSDP_TRY(read_codec(t, &m->codec));
    FSDP_TRY(copy_vector(t, at::NODES, &m->nodes, &m->n_nodes));
    FSDP_TRY(copy_vector(t, at::BUFFERS, &m->buffers, &m->n_buffers));
    return copy_vector(t, at::VARIADIC_BUFFER_COUNTS, &m->variadic, &m->n_variadic);
}

fsdp_status read_dictionary(const Table *t, fsdp_arrow_message *m)
{
    m->dictionary_id = t->GetField<int64_t>(at::ID, 0);
    m->is_delta = t->GetField<uint8_t>(at::IS_DELTA, 0) != 0;
    return read_batch(pointer<Table>(t, at::DATA), m);
}

/* Read the header of a message into *m. If it is a schema and `schema` is not null, also read it
 * into *schema, which then owns *bytes; *bytes is set to nullptr. */
fsdp_status read_header(const Table *t, void **bytes, fsdp_arrow_message *m,
                        fsdp_arrow_schema *schema)
{
    const auto *header = pointer<Table>(t, at::HEADER);
    const int type = t->GetField<uint8_t>(at::HEADER_TYPE, 0);
    m->version = t->GetField<int16_t>(at::VERSION, 0);
    m->body_bytes = t->GetField<int64_t>(at::BODY_LENGTH, 0);
    m->header = static_cast<fsdp_arrow_header>(type);
    if (m->version != V4 && m->version != V5)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "version V%d of Arrow's format; V4 and V5, which Arrow has written since "
                          "0.8, are supported",
                          m->version + 1);
    if (m->body_bytes < 0 || !header)
        return damaged();
    if (type == FSDP_ARROW_RECORD_BATCH)
        return read_batch(header, m);
    if (type == FSDP_ARROW_DICTIONARY_BATCH)
        return read_dictionary(header, m);
    if (type != FSDP_ARROW_SCHEMA)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "a message of type %d (%s); only tables are read",
                          type,
                          type == 4   ? "a tensor"
                          : type == 5 ? "a sparse tensor"
                                      : "unknown");
    if (!schema)
        return FSDP_OK;
    FSDP_TRY(read_schema(header, *bytes, schema));
    *bytes = nullptr;
    return FSDP_OK;
}

/* Set *offsets to the offsets of the blocks at `field`. */
fsdp_status read_blocks(const Table *t, voffset_t field, int64_t **offsets, size_t *count)
{
    Block *blocks = nullptr;
    FSDP_TRY(copy_vector(t, field, &blocks, count));
    *offsets = static_cast<int64_t *>(fsdp_calloc(*count, sizeof(int64_t)));
    for (size_t i = 0; *offsets && i < *count; i++)
        (*offsets)[i] = blocks[i].offset;
    fsdp_free(blocks);
    return *offsets ? FSDP_OK : FSDP_ERR_NOMEM;
}

fsdp_status read_footer(const Table *t, void **bytes, fsdp_arrow_footer *out,
                        fsdp_arrow_schema *schema)
{
    const auto *table = pointer<Table>(t, at::SCHEMA);
    if (!table)
        return damaged();
    FSDP_TRY(read_blocks(t, at::DICTIONARIES, &out->dictionaries, &out->n_dictionaries));
    FSDP_TRY(read_blocks(t, at::RECORD_BATCHES, &out->batches, &out->n_batches));
    FSDP_TRY(read_schema(table, *bytes, schema));
    *bytes = nullptr;
    return FSDP_OK;
}

/* Return `data` if it is aligned and `keep` is false. Otherwise set *copy to a copy of `data`, and
 * return the copy; nullptr if out of memory. */
const uint8_t *aligned(const void *data, size_t bytes, bool keep, void **copy)
{
    if (!keep && reinterpret_cast<uintptr_t>(data) % 8 == 0)
        return static_cast<const uint8_t *>(data);
    *copy = fsdp_calloc(bytes, 1);
    if (*copy)
        std::memcpy(*copy, data, bytes);
    return static_cast<const uint8_t *>(*copy);
}

} // namespace

fsdp_status fsdp_arrow_message_parse(const void *data, size_t bytes, fsdp_arrow_message *message,
                                     fsdp_arrow_schema *schema)
{
    void *copy = nullptr;
    fsdp_arrow_message m{};
    const fsdp_status status = guarded([&]() -> fsdp_status {
        if (bytes > FSDP_ARROW_MAX_METADATA)
            return damaged();
        const uint8_t *at = aligned(data, bytes, schema != nullptr, &copy);
        if (!at)
            return FSDP_ERR_NOMEM;
        const Table *root = verified_root(at, bytes, verify_message);
        return root ? read_header(root, &copy, &m, schema) : damaged();
    });
    fsdp_free(copy);
    if (status == FSDP_OK)
        *message = m;
    else
        fsdp_arrow_message_fini(&m);
    return status;
}

fsdp_status fsdp_arrow_footer_parse(const void *data, size_t bytes, fsdp_arrow_footer *footer,
                                    fsdp_arrow_schema *schema)
{
    void *copy = nullptr;
    fsdp_arrow_footer f{};
    const fsdp_status status = guarded([&]() -> fsdp_status {
        if (bytes > FSDP_ARROW_MAX_METADATA)
            return damaged();
        const uint8_t *at = aligned(data, bytes, true, &copy);
        if (!at)
            return FSDP_ERR_NOMEM;
        const Table *root = verified_root(at, bytes, verify_footer);
        return root ? read_footer(root, &copy, &f, schema) : damaged();
    });
    fsdp_free(copy);
    if (status == FSDP_OK)
        *footer = f;
    else
        fsdp_arrow_footer_fini(&f);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

namespace
{
using Builder = flatbuffers::FlatBufferBuilder;

/* Begin a table, call `body` to add its fields, and end the table. */
template <typename Body> Offset<Table> make_table(Builder &b, Body body)
{
    const flatbuffers::uoffset_t start = b.StartTable();
    body();
    return Offset<Table>(b.EndTable(start));
}

Offset<Table> make_type(Builder &b, const fsdp_arrow_field &f)
{
    return make_table(b, [&] {
        if (f.type == FSDP_ARROW_INT) {
            b.AddElement<int32_t>(at::BIT_WIDTH, f.bits, 0);
            b.AddElement<uint8_t>(at::IS_SIGNED, f.is_signed, 0);
        } else if (f.type == FSDP_ARROW_FLOAT) {
            const int precision = f.bits == 16 ? 0 : f.bits == 32 ? 1 : 2;
            b.AddElement<int16_t>(at::PRECISION, static_cast<int16_t>(precision), 0);
        }
    });
}

Offset<Table> make_field(Builder &b, const fsdp_arrow_field *fields, size_t index)
{
    const fsdp_arrow_field &f = fields[index];
    std::vector<Offset<Table>> children;
    for (size_t i = index + 1; i < f.end; i = fields[i].end)
        children.push_back(make_field(b, fields, i));
    const auto vector = b.CreateVector(children);
    const auto name = b.CreateString(f.name);
    const auto type = make_type(b, f);
    return make_table(b, [&] {
        b.AddOffset(at::NAME, name);
        b.AddElement<uint8_t>(at::NULLABLE, 1, 0);
        b.AddElement<uint8_t>(at::TYPE_TYPE, static_cast<uint8_t>(f.type), 0);
        b.AddOffset(at::TYPE, type);
        b.AddOffset(at::CHILDREN, vector);
    });
}

Offset<Table> make_schema(Builder &b, const fsdp_arrow_field *fields, size_t n_fields,
                          const char *huggingface)
{
    std::vector<Offset<Table>> columns, pairs;
    for (size_t i = 0; i < n_fields; i = fields[i].end)
        columns.push_back(make_field(b, fields, i));
    if (huggingface) {
        const auto key = b.CreateString("huggingface"), value = b.CreateString(huggingface);
        pairs.push_back(make_table(b, [&] {
            b.AddOffset(at::KEY, key);
            b.AddOffset(at::VALUE, value);
        }));
    }
    const auto column_vector = b.CreateVector(columns), pair_vector = b.CreateVector(pairs);
    return make_table(b, [&] {
        b.AddElement<int16_t>(at::ENDIANNESS, 0, 0);
        b.AddOffset(at::FIELDS, column_vector);
        b.AddOffset(at::SCHEMA_METADATA, pair_vector);
    });
}

Offset<Table> make_batch(Builder &b, const fsdp_arrow_message *m)
{
    const auto nodes = b.CreateVectorOfStructs(m->nodes, m->n_nodes);
    const auto buffers = b.CreateVectorOfStructs(m->buffers, m->n_buffers);
    return make_table(b, [&] {
        b.AddElement<int64_t>(at::LENGTH, m->rows, 0);
        b.AddOffset(at::NODES, nodes);
        b.AddOffset(at::BUFFERS, buffers);
    });
}

/* Wrap `header` in a message, and copy the finished FlatBuffer to *data. */
fsdp_status finish(Builder &b, fsdp_arrow_header type, Offset<Table> header, int64_t body_bytes,
                   void **data, size_t *bytes)
{
    b.Finish(make_table(b, [&] {
        b.AddElement<int64_t>(at::BODY_LENGTH, body_bytes, 0);
        b.AddOffset(at::HEADER, header);
        b.AddElement<int16_t>(at::VERSION, V5, 0);
        b.AddElement<uint8_t>(at::HEADER_TYPE, static_cast<uint8_t>(type), 0);
    }));
    void *copy = fsdp_calloc(b.GetSize(), 1);
    if (!copy)
        return FSDP_ERR_NOMEM;
    std::memcpy(copy, b.GetBufferPointer(), b.GetSize());
    *data = copy;
    *bytes = b.GetSize();
    return FSDP_OK;
}
} // namespace

fsdp_status fsdp_arrow_schema_write(const fsdp_arrow_field *fields, size_t n_fields,
                                    const char *huggingface, void **data, size_t *bytes)
{
    return guarded([&]() -> fsdp_status {
        Builder b;
        const auto schema = make_schema(b, fields, n_fields, huggingface);
        return finish(b, FSDP_ARROW_SCHEMA, schema, 0, data, bytes);
    });
}

fsdp_status fsdp_arrow_batch_write(const fsdp_arrow_message *message, void **data, size_t *bytes)
{
    return guarded([&]() -> fsdp_status {
        Builder b;
        const auto batch = make_batch(b, message);
        return finish(b, FSDP_ARROW_RECORD_BATCH, batch, message->body_bytes, data, bytes);
    });
}
