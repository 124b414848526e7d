/* Reads a file line by line through a buffer. If the buffer ends before the line does, more bytes
 * are read, and the search for the line end continues with these bytes. */
#include "src/data/files/lines.h"

#include <inttypes.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/file_kind.h"
#include "src/text/chars/utf8.h"

enum {
    READ_BYTES = 1 << 18
};

struct fsdp_lines {
    fsdp_input *input;
    bool owns_input;
    char *path;
    char *data; /* [len] bytes that have been read; data[start, len) have not been returned yet;
                   data[start, searched) contain no line end */
    size_t start, searched, len, cap;
    uint64_t offset; /* offset of data[start] in the file */
    int64_t number;  /* number of the line that was returned last; 0: none yet */
    bool end_of_file;
};

/* Drop the bytes that have already been returned, and read more. */
static fsdp_status read_more(fsdp_lines *l)
{
    if (l->start) {
        memmove(l->data, l->data + l->start, l->len - l->start);
        l->len -= l->start;
        l->searched -= l->start;
        l->start = 0;
    }
    if (!FSDP_GROW(l->data, l->cap, l->len + READ_BYTES))
        return FSDP_ERR_NOMEM;
    size_t n;
    FSDP_TRY(fsdp_input_read(l->input, l->data + l->len, READ_BYTES, &n));
    l->end_of_file = n < READ_BYTES;
    l->len += n;
    return FSDP_OK;
}

static fsdp_status skip_byte_order_mark(fsdp_lines *l)
{
    FSDP_TRY(read_more(l));
    if (l->len >= 3 && memcmp(l->data, "\xEF\xBB\xBF", 3) == 0) {
        l->start = l->searched = 3;
        l->offset = 3;
    } else if (l->len >= 2 &&
               (memcmp(l->data, "\xFF\xFE", 2) == 0 || memcmp(l->data, "\xFE\xFF", 2) == 0)) {
        return fsdp_error(FSDP_ERR_FORMAT, "%s: UTF-16; convert it to UTF-8", l->path);
    }
    return FSDP_OK;
}

/* Refuse a pointer file of Git LFS. Such a file is text, so without this check its lines would be
 * read as rows. */
static fsdp_status check_is_no_pointer(const fsdp_lines *l)
{
    static const char pointer[] = "version https://git-lfs";
    const size_t n = sizeof pointer - 1;
    if (l->len < n || memcmp(l->data, pointer, n) != 0)
        return FSDP_OK;
    return fsdp_file_explain(l->path, "rows of data", FSDP_WANTED_TEXT, l->data, l->len);
}

static fsdp_status begin(fsdp_lines *l, const char *path)
{
    if (!(l->path = fsdp_strdup(path)))
        return FSDP_ERR_NOMEM;
    FSDP_TRY(skip_byte_order_mark(l));
    return check_is_no_pointer(l);
}

fsdp_status fsdp_lines_of_input(fsdp_input *input, const char *path, fsdp_lines **out)
{
    fsdp_lines *l = fsdp_calloc(1, sizeof *l);
    if (!l)
        return FSDP_ERR_NOMEM;
    l->input = input;
    fsdp_status status = begin(l, path);
    if (status != FSDP_OK) {
        fsdp_lines_close(l);
        return status;
    }
    *out = l;
    return FSDP_OK;
}

fsdp_status fsdp_lines_open(const char *path, fsdp_lines **out)
{
    fsdp_input *input;
    FSDP_TRY(fsdp_input_open(path, &input));
    fsdp_status status = fsdp_lines_of_input(input, path, out);
    if (status == FSDP_OK)
        (*out)->owns_input = true;
    else
        fsdp_input_close(input);
    return status;
}

void fsdp_lines_close(fsdp_lines *l)
{
    if (!l)
        return;
    if (l->owns_input)
        fsdp_input_close(l->input);
    fsdp_free(l->path);
    fsdp_free(l->data);
    fsdp_free(l);
}

/* Return the first CR or LF in data[searched, len), or NULL. */
static const char *find_end(const fsdp_lines *l)
{
    const char *from = l->data + l->searched;
    size_t left = l->len - l->searched;
    const char *lf = memchr(from, '\n', left);
    const char *cr = memchr(from, '\r', lf ? (size_t)(lf - from) : left);
    return cr ? cr : lf;
}

/* If `line` is the first line, look whether the file is of a known binary kind. If it is, return an
 * error whose message contains the kind. Otherwise return FSDP_OK, so that the caller reports its
 * own error. */
static fsdp_status explain_binary(const fsdp_lines *l, const fsdp_line *line)
{
    if (line->number > 1)
        return FSDP_OK;
    return fsdp_file_explain(l->path, "text", FSDP_WANTED_TEXT, line->text, l->len - l->start);
}

static fsdp_status check_line(const fsdp_lines *l, const fsdp_line *line)
{
    const size_t valid = fsdp_utf8_valid_length(line->text, line->length);
    const char *nul = memchr(line->text, 0, line->length);
    if (valid == line->length && !nul)
        return FSDP_OK;
    FSDP_TRY(explain_binary(l, line));
    if (valid < line->length)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: line %" PRId64 ": not UTF-8: byte 0x%02x at column %zu", l->path,
                          line->number, (unsigned)(unsigned char)line->text[valid], valid + 1);
    return fsdp_error(FSDP_ERR_FORMAT, "%s: line %" PRId64 ": NUL character at column %zu", l->path,
                      line->number, (size_t)(nul - line->text) + 1);
}

fsdp_status fsdp_lines_next(fsdp_lines *l, fsdp_line *line)
{
    const char *end;
    /* A CR at the end of the buffer may be half of a CRLF, so the next byte is also needed. */
    while (!(end = find_end(l)) || (*end == '\r' && end + 1 == l->data + l->len)) {
        if (l->end_of_file)
            break;
        l->searched = end ? (size_t)(end - l->data) : l->len;
        if (l->searched - l->start > FSDP_LINE_BYTES_MAX)
            return fsdp_error(FSDP_ERR_FORMAT, "%s: line %" PRId64 ": longer than %d MiB", l->path,
                              l->number + 1, FSDP_LINE_BYTES_MAX >> 20);
        FSDP_TRY(read_more(l));
    }
    *line = (fsdp_line){.offset = l->offset, .number = l->number + 1};
    if (!end && l->start == l->len)
        return FSDP_OK;
    line->text = l->data + l->start;
    line->length = (end ? (size_t)(end - l->data) : l->len) - l->start;
    line->bytes = line->length + (end != NULL);
    if (end && *end == '\r' && end + 1 < l->data + l->len && end[1] == '\n')
        line->bytes++;
    FSDP_TRY(check_line(l, line));
    l->start = l->searched = l->start + line->bytes;
    l->offset += line->bytes;
    l->number++;
    return FSDP_OK;
}

bool fsdp_line_is_blank(const fsdp_line *line)
{
    for (size_t i = 0; i < line->length; i++)
        if (line->text[i] != ' ' && line->text[i] != '\t')
            return false;
    return true;
}
