/* Builds and prints tables. Cells are stored as strings, row by row. The widths of columns are
 * computed when the table is printed. */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/report/table.h"
#include "src/report/terminal.h"

struct fsdp_table {
    size_t columns;
    char **headings; /* [columns]; NULL: no heading */
    fsdp_table_align *aligns;
    char **cells; /* [rows, columns]; NULL: an empty cell */
    bool *rules;  /* [rows] true: a horizontal line is above this row */
    size_t rows, cells_cap, rules_cap;
    /* index of the cell in the last row that the next fsdp_table_cell() fills */
    size_t next;
    bool rule_wanted;   /* true: a horizontal line will be above the next row */
    fsdp_status status; /* the first error while the table was built */
};

/* The characters of a style: lines, corners and crossings. In corner[row][place], row 0 is at the
 * top of the table, 1 in the middle, and 2 at the bottom. Place 0 is at the left, 1 in the middle,
 * and 2 at the right. */
typedef struct line_style {
    const char *horizontal, *vertical;
    const char *corner[3][3];
} line_style;

fsdp_status fsdp_table_create(size_t columns, fsdp_table **out)
{
    FSDP_ASSERT(columns > 0);
    fsdp_table *table = fsdp_calloc(1, sizeof *table);
    if (!table)
        return FSDP_ERR_NOMEM;
    table->columns = columns;
    table->headings = fsdp_calloc(columns, sizeof *table->headings);
    table->aligns = fsdp_calloc(columns, sizeof *table->aligns);
    if (!table->headings || !table->aligns) {
        fsdp_table_destroy(table);
        return FSDP_ERR_NOMEM;
    }
    *out = table;
    return FSDP_OK;
}

void fsdp_table_destroy(fsdp_table *table)
{
    if (!table)
        return;
    for (size_t i = 0; table->headings && i < table->columns; i++)
        fsdp_free(table->headings[i]);
    for (size_t i = 0; i < table->rows * table->columns; i++)
        fsdp_free(table->cells[i]);
    fsdp_free(table->headings);
    fsdp_free(table->aligns);
    fsdp_free(table->cells);
    fsdp_free(table->rules);
    fsdp_free(table);
}

/* Set *slot, a heading or a cell, to `text`, which the table then owns. If `text` is NULL, record
 * that memory ran out. Control characters become spaces. */
static void set_text(fsdp_table *table, char **slot, char *text)
{
    if (!text) {
        table->status = table->status == FSDP_OK ? FSDP_ERR_NOMEM : table->status;
        return;
    }
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7F)
            *c = ' ';
    fsdp_free(*slot);
    *slot = text;
}

void fsdp_table_column(fsdp_table *table, size_t i, const char *heading, fsdp_table_align align)
{
    FSDP_ASSERT(i < table->columns);
    set_text(table, &table->headings[i], fsdp_strdup(heading));
    table->aligns[i] = align;
}

void fsdp_table_row(fsdp_table *table)
{
    size_t cells = table->rows * table->columns;
    if (!FSDP_GROW(table->cells, table->cells_cap, cells + table->columns) ||
        !FSDP_GROW(table->rules, table->rules_cap, table->rows + 1)) {
        table->status = FSDP_ERR_NOMEM;
        table->next = table->columns;
        return;
    }
    for (size_t i = 0; i < table->columns; i++)
        table->cells[cells + i] = NULL;
    table->rules[table->rows++] = table->rule_wanted;
    table->rule_wanted = false;
    table->next = 0;
}

void fsdp_table_cell(fsdp_table *table, const char *format, ...)
{
    if (table->status != FSDP_OK)
        return;
    if (!table->rows || table->next == table->columns) {
        table->status =
            fsdp_error(FSDP_ERR_STATE, "table: a cell outside its %zu columns", table->columns);
        return;
    }
    char stack[512];
    va_list args;
    va_start(args, format);
    vsnprintf(stack, sizeof stack, format, args);
    va_end(args);
    set_text(table, &table->cells[(table->rows - 1) * table->columns + table->next++],
             fsdp_strdup(stack));
}

void fsdp_table_rule(fsdp_table *table)
{
    table->rule_wanted = true;
}

static size_t column_width(const fsdp_table *table, size_t column)
{
    size_t width = table->headings[column] ? fsdp_text_columns(table->headings[column]) : 0;
    for (size_t row = 0; row < table->rows; row++) {
        const char *cell = table->cells[row * table->columns + column];
        size_t columns = cell ? fsdp_text_columns(cell) : 0;
        width = columns > width ? columns : width;
    }
    return width;
}

static void print_repeated(FILE *file, const char *text, size_t n)
{
    while (n--)
        fputs(text, file);
}

static void print_rule(FILE *file, const line_style *style, const size_t *widths, size_t n, int at)
{
    for (size_t i = 0; i < n; i++) {
        fputs(style->corner[at][i ? 1 : 0], file);
        print_repeated(file, style->horizontal, widths[i] + 2);
    }
    fprintf(file, "%s\n", style->corner[at][2]);
}

static void print_row(FILE *file, const fsdp_table *table, const line_style *style,
                      const size_t *widths, char *const *cells)
{
    for (size_t i = 0; i < table->columns; i++) {
        const char *cell = cells[i] ? cells[i] : "";
        size_t space = widths[i] - fsdp_text_columns(cell);
        bool right = table->aligns[i] == FSDP_TABLE_RIGHT;
        fprintf(file, "%s ", style->vertical);
        print_repeated(file, " ", right ? space : 0);
        fputs(cell, file);
        print_repeated(file, " ", (right ? 0 : space) + 1);
    }
    fprintf(file, "%s\n", style->vertical);
}

static bool has_headings(const fsdp_table *table)
{
    for (size_t i = 0; i < table->columns; i++)
        if (table->headings[i])
            return true;
    return false;
}

fsdp_status fsdp_table_print(const fsdp_table *table, FILE *file, fsdp_table_style style)
{
    static const line_style box = {"\u2500",
                                   "\u2502",
                                   {{"\u250c", "\u252c", "\u2510"},
                                    {"\u251c", "\u253c", "\u2524"},
                                    {"\u2514", "\u2534", "\u2518"}}};
    static const line_style ascii = {"-", "|", {{"+", "+", "+"}, {"+", "+", "+"}, {"+", "+", "+"}}};
    if (style == FSDP_TABLE_AUTO)
        style = fsdp_terminal_utf8() ? FSDP_TABLE_BOX : FSDP_TABLE_ASCII;
    const line_style *lines = style == FSDP_TABLE_BOX ? &box : &ascii;
    if (table->status != FSDP_OK)
        return table->status == FSDP_ERR_NOMEM ? fsdp_error_nomem() : table->status;
    size_t *widths = fsdp_calloc(table->columns, sizeof *widths);
    if (!widths)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < table->columns; i++)
        widths[i] = column_width(table, i);
    print_rule(file, lines, widths, table->columns, 0);
    if (has_headings(table)) {
        print_row(file, table, lines, widths, table->headings);
        print_rule(file, lines, widths, table->columns, 1);
    }
    for (size_t row = 0; row < table->rows; row++) {
        if (row && table->rules[row])
            print_rule(file, lines, widths, table->columns, 1);
        print_row(file, table, lines, widths, table->cells + row * table->columns);
    }
    print_rule(file, lines, widths, table->columns, 2);
    fsdp_free(widths);
    if (fflush(file) != 0)
        return fsdp_error(FSDP_ERR_IO, "printing a table: %s", strerror(errno));
    return FSDP_OK;
}
