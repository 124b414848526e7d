/* Recognizes the kind of a file by its first bytes. A few kinds are recognized by the last bytes of
 * the file. */
#include "src/base/file_kind.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "src/base/assert.h"

enum {
    TAR_MAGIC_AT = 257,
    SHOWN_TEXT = 60,
    SHOWN_ZEROS = 64, /* no valid file begins with this many zero bytes */
    /* Used if numbers are expected (FSDP_WANTED_NUMBERS). A magic of fewer bytes than this is
     * ignored, because numbers may contain the magic by chance. */
    CERTAIN_MAGIC = 4,
    /* Used if numbers are expected (FSDP_WANTED_NUMBERS). A text of fewer characters than this is
     * ignored, because numbers may look like text by chance. */
    CERTAIN_TEXT = 32,
    MAX_LINK_BYTES = 4096,
    TABLE_FOOTER_BYTES = 48 /* footer size of an SSTable, as in TensorFlow's checkpoints */
};

typedef struct content {
    const unsigned char *data; /* [bytes] */
    size_t bytes;
} content;

/* ---- kinds by magic bytes -------------------------------------------------------------------- */

static bool has_at(content c, size_t at, const char *magic, size_t n)
{
    return c.bytes >= at + n && memcmp(c.data + at, magic, n) == 0;
}

#define MAGIC(bytes) bytes, sizeof(bytes) - 1

static const struct {
    const char *magic;
    size_t n;
    const char *kind;
} kinds[] = {
    {MAGIC("version https://git-lfs"),
     "a Git LFS pointer instead of the file: run 'git lfs pull' in its repository"},
    {MAGIC("version https://hawser"),
     "a Git LFS pointer instead of the file: run 'git lfs pull' in its repository"},
    {MAGIC("\x1f\x8b"), "gzip-compressed data: decompress it first, with gunzip or tar xzf"},
    {MAGIC("\xfd\x37zXZ"), "xz-compressed data: decompress it first, with unxz or tar xJf"},
    {MAGIC("BZh"), "bzip2-compressed data: decompress it first, with bunzip2 or tar xjf"},
    {MAGIC("\x28\xb5\x2f\xfd"), "zstd-compressed data: decompress it first, with unzstd"},
    {MAGIC("7z\xbc\xaf\x27\x1c"), "a 7z archive: unpack it first"},
    {MAGIC("PK\3\4"), "a zip archive: unpack it first, or, if torch.save wrote it, give it a "
                      "name that ends in .pt, .pth or .bin"},
    {MAGIC("GGUF"), "a GGUF file of llama.cpp: get the model as safetensors or pytorch_model.bin"},
    {MAGIC("GGML"), "a GGML file of llama.cpp: get the model as safetensors or pytorch_model.bin"},
    {MAGIC("\x93NUMPY"), "an array of NumPy (.npy): save the weights with safetensors.numpy"},
    {MAGIC("\x89HDF\r\n\x1a\n"),
     "an HDF5 file, as Keras writes weights: in transformers, "
     "from_pretrained(DIR, from_tf=True).save_pretrained(NEW_DIR) makes safetensors of them"},
    {MAGIC("PAR1"), "a Parquet file: in Python, datasets.Dataset.from_parquet(FILE).save_to_disk("
                    "DIR) makes an Arrow folder of it, and pandas.read_parquet(FILE).to_json("
                    "NEW_FILE, orient='records', lines=True) JSON lines"},
    {MAGIC("FEA1"), "a Feather file of version 1: in Python, pandas.read_feather(FILE).to_feather("
                    "NEW_FILE) makes an Arrow file of it"},
    {MAGIC("ARROW1"), "an Arrow file, which has rows of data"},
    {MAGIC("%PDF"), "a PDF document"},
    {MAGIC("\x89PNG"), "a PNG image"},
    {MAGIC("\x7f"
           "ELF"),
     "a program or shared library (ELF)"},
};

/* Return true if the content is a zip archive that an office program wrote. The name of the first
 * file in the archive follows the archive's first 30 bytes. */
static bool is_office_document(content c)
{
    enum {
        NAME_AT = 30
    };
    static const char *const names[] = {"[Content_Types].xml", "_rels/", "docProps/", "xl/",
                                        "mimetypeapplication/vnd.oasis"};
    for (size_t i = 0; i < FSDP_LENGTH(names); i++)
        if (has_at(c, 0, "PK\3\4", 4) && has_at(c, NAME_AT, names[i], strlen(names[i])))
            return true;
    return false;
}

/* Return the kind of a file that begins with a known magic of at least `shortest` bytes, else NULL.
 * A tar archive and an office document are recognized for any `shortest`. */
static const char *kind_by_magic(content c, size_t shortest)
{
    if (is_office_document(c))
        return "a document of an office program, such as .xlsx or .ods: save a spreadsheet as CSV";
    for (size_t i = 0; i < FSDP_LENGTH(kinds); i++)
        if (kinds[i].n >= shortest && has_at(c, 0, kinds[i].magic, kinds[i].n))
            return kinds[i].kind;
    if (has_at(c, TAR_MAGIC_AT, "ustar", 5))
        return "a tar archive: unpack it first, with tar xf";
    return NULL;
}

/* ---- kinds by structure ---------------------------------------------------------------------- */

/* An ONNX file is a protocol buffer that begins with ir_version (a small number), followed by
 * producer_name. */
static bool is_onnx(content c)
{
    return c.bytes > 4 && c.data[0] == 0x08 && c.data[1] > 0 && c.data[1] < 32 &&
           c.data[2] == 0x12 && c.data[3] > 0 && c.data[3] < 64 && isalpha(c.data[4]);
}

static bool is_tensorflow_index(content c)
{
    static const char footer[] = "\x57\xfb\x80\x8b\x24\x75\x47\xdb";
    return c.bytes >= TABLE_FOOTER_BYTES && has_at(c, c.bytes - 8, footer, 8);
}

/* A Flax file is a MessagePack map whose first key is text. */
static bool is_flax(content c)
{
    const bool is_map =
        c.bytes > 3 && ((c.data[0] > 0x80 && c.data[0] < 0x90) || c.data[0] == 0xde);
    const size_t at = is_map && c.data[0] == 0xde ? 3 : 1;
    if (!is_map || c.bytes < at + 3)
        return false;
    return (c.data[at] > 0xa0 && c.data[at] < 0xc0 && isalnum(c.data[at + 1])) ||
           (c.data[at] == 0xd9 && isalnum(c.data[at + 2]));
}

/* A safetensors file begins with 8 bytes that contain the length of its header. The length is less
 * than 2^32. The header comes next, and is JSON. */
static bool is_safetensors(content c)
{
    return has_at(c, 4, "\0\0\0\0{\"", 6);
}

/* Return true if the file begins with SHOWN_ZEROS zero bytes. Space that was reserved for a file
 * but never written reads as zeros. */
static bool begins_with_zeros(content c)
{
    size_t n = 0;
    while (n < c.bytes && n < SHOWN_ZEROS && c.data[n] == 0)
        n++;
    return n == SHOWN_ZEROS;
}

static bool is_pickle(content c)
{
    return c.bytes > 2 && c.data[0] == 0x80 && c.data[1] >= 2 && c.data[1] <= 5;
}

static const char *kind_by_structure(content c)
{
    if (begins_with_zeros(c))
        return "a file that begins with zeros alone: a copy or a download of it was broken off; "
               "get it again";
    if (is_onnx(c))
        return "an ONNX model, which contains a graph: get the weights of the PyTorch model";
    if (is_tensorflow_index(c))
        return "the index of a TensorFlow checkpoint: in transformers, "
               "from_pretrained(DIR, from_tf=True).save_pretrained(NEW_DIR) makes safetensors of "
               "it";
    if (is_flax(c))
        return "MessagePack, as Flax writes weights: in transformers, "
               "from_pretrained(DIR, from_flax=True).save_pretrained(NEW_DIR) makes safetensors of "
               "them";
    if (is_safetensors(c))
        return "a safetensors file: give it a name that ends in .safetensors";
    if (is_pickle(c))
        return "a Python pickle without an archive around it: save it with torch.save";
    return NULL;
}

/* ---- text ------------------------------------------------------------------------------------ */

static size_t skip_space(content c)
{
    size_t at = has_at(c, 0, "\xef\xbb\xbf", 3) ? 3 : 0;
    while (at < c.bytes && isspace(c.data[at]))
        at++;
    return at;
}

static bool is_html(content c)
{
    static const char *const begins[] = {"<!doctype html", "<html", "<head", "<!--", "<?xml"};
    const size_t at = skip_space(c);
    for (size_t i = 0; i < FSDP_LENGTH(begins); i++) {
        size_t n = 0;
        while (begins[i][n] && at + n < c.bytes && tolower(c.data[at + n]) == begins[i][n])
            n++;
        if (!begins[i][n])
            return true;
    }
    return false;
}

/* Return the number of printable ASCII characters at the beginning, but at most SHOWN_TEXT. */
static size_t printable_length(content c)
{
    size_t n = 0;
    while (n < c.bytes && n < SHOWN_TEXT && c.data[n] >= 0x20 && c.data[n] < 0x7f)
        n++;
    return n;
}

/* Return true if the content looks like the target of a symbolic link. Where links are not
 * supported, Git stores a link as a file that contains its target. */
static bool is_stored_link(content c)
{
    if (c.bytes > MAX_LINK_BYTES || (!has_at(c, 0, "../", 3) && !has_at(c, 0, "/", 1)))
        return false;
    for (size_t i = 0; i < c.bytes; i++)
        if (c.data[i] < 0x20 && !(c.data[i] == '\n' && i + 1 == c.bytes))
            return false;
    return true;
}

static bool is_text(content c)
{
    const size_t n = printable_length(c);
    return n > 0 && (n == c.bytes || n == SHOWN_TEXT || c.data[n] == '\n' || c.data[n] == '\r');
}

/* ---- explaining a file ----------------------------------------------------------------------- */

static fsdp_status explain_kind(const char *path, const char *what, const char *kind)
{
    return fsdp_error(FSDP_ERR_FORMAT, "%s: not %s, but %s", path, what, kind);
}

static fsdp_status explain_text(const char *path, const char *what, content c)
{
    return fsdp_error(FSDP_ERR_FORMAT, "%s: not %s, but text that begins with '%.*s'", path, what,
                      (int)printable_length(c), (const char *)c.data);
}

/* Return an error if the file begins like a web page, or if it contains only the target of a
 * link. */
static fsdp_status explain_any_text(const char *path, const char *what, content c)
{
    if (is_html(c))
        return explain_kind(path, what,
                            "a web page (HTML), which a download gives if it needs a login or the "
                            "file does not exist: get it again");
    if (is_stored_link(c))
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: not %s, but text that is the target of a symbolic link, '%.*s': the "
                          "link was stored as a file; copy the file that it refers to here",
                          path, what, (int)printable_length(c), (const char *)c.data);
    return FSDP_OK;
}

static fsdp_status explain_numbers(const char *path, const char *what, content c)
{
    const char *kind = kind_by_magic(c, CERTAIN_MAGIC);
    if (kind)
        return explain_kind(path, what, kind);
    size_t n = 0;
    while (n < c.bytes && n < CERTAIN_TEXT && (isprint(c.data[n]) || isspace(c.data[n])))
        n++;
    if (n < CERTAIN_TEXT)
        return FSDP_OK;
    FSDP_TRY(explain_any_text(path, what, c));
    return explain_text(path, what, c);
}

fsdp_status fsdp_file_explain(const char *path, const char *what, fsdp_file_wanted wanted,
                              const void *data, size_t bytes)
{
    const content c = {data, bytes};
    if (bytes == 0)
        return explain_kind(path, what,
                            "an empty file: a copy or download was interrupted; get it again");
    if (wanted == FSDP_WANTED_NUMBERS)
        return explain_numbers(path, what, c);
    const char *kind = kind_by_magic(c, 1);
    if (kind)
        return explain_kind(path, what, kind);
    FSDP_TRY(explain_any_text(path, what, c));
    kind = kind_by_structure(c);
    if (kind)
        return explain_kind(path, what, kind);
    return wanted == FSDP_WANTED_BINARY && is_text(c) ? explain_text(path, what, c) : FSDP_OK;
}
