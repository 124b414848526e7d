/* Compares progress lines with tqdm 4.70.1 (tests/fixtures/train/make_progress.py), and tests the
 * behavior on a terminal (a pseudo-terminal) and on a file. */
#include <fcntl.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/report/progress.h"
#include "src/report/terminal.h"
#include "tests/test.h"

enum {
    FIELDS = 10
};

static bool split(char *line, char **fields)
{
    line[strcspn(line, "\n")] = 0;
    for (int i = 0; i < FIELDS; i++) {
        fields[i] = line;
        char *tab = strchr(line, '\t');
        if (!tab)
            return i == FIELDS - 1;
        *tab = 0;
        line = tab + 1;
    }
    return false;
}

TEST(lines_are_those_of_tqdm)
{
    char line[2048], got[2048], *f[FIELDS];
    int n = 0;
    FILE *file = fopen(fsdp_test_path("fixtures/train/progress.tsv"), "r");
    ASSERT(file);
    while (fgets(line, sizeof line, file)) {
        ASSERT(split(line, f));
        fsdp_progress_meter meter = {.description = f[0],
                                     .postfix = f[1],
                                     .done = strtoll(f[2], NULL, 10),
                                     .total = strtoll(f[3], NULL, 10),
                                     .elapsed_s = strtod(f[4], NULL),
                                     .rate = strtod(f[5], NULL),
                                     .color = (fsdp_progress_color)atoi(f[6]),
                                     .columns = atoi(f[7]),
                                     .utf8 = atoi(f[8]) != 0};
        fsdp_progress_format(&meter, got, sizeof got);
        ASSERT_STR(got, f[9]);
        n++;
    }
    fclose(file);
    ASSERT(n > 50);
}

TEST(no_columns_means_no_bar)
{
    char got[256];
    fsdp_progress_meter meter = {.description = "Training",
                                 .postfix = "loss=2.345",
                                 .done = 90,
                                 .total = 200,
                                 .elapsed_s = 12.48,
                                 .columns = -1};
    fsdp_progress_format(&meter, got, sizeof got);
    ASSERT_STR(got, "Training:  45% 90/200 [00:12<00:15,  7.21it/s, loss=2.345]");
}

/* Adds the elapsed time to *seconds. */
static void run_bar(fsdp_test *t, FILE *file, fsdp_progress_style style, double *seconds)
{
    fsdp_progress *bar;
    const double start = fsdp_clock_s();
    fsdp_progress_options options = {.file = file,
                                     .description = "r0 Training Epoch",
                                     .total = 50,
                                     .color = FSDP_PROGRESS_BLUE,
                                     .style = style};
    ASSERT_OK(fsdp_progress_create(&options, &bar));
    for (int i = 0; i < 50; i++) {
        fsdp_progress_update(bar, 1, "loss=%.3f", 3.0 - i * 0.01);
        if (i == 20)
            fsdp_progress_print(bar, "saved");
    }
    fsdp_progress_destroy(bar);
    *seconds += fsdp_clock_s() - start;
}

/* Drawn at least `least` times, and beyond that only once every `interval_s` seconds. */
static bool is_drawn(size_t times, size_t least, double seconds, double interval_s)
{
    return times >= least && (double)(times - least) <= seconds / interval_s;
}

static size_t read_all(int fd, char *text, size_t bytes)
{
    size_t used = 0;
    ssize_t n;
    while (used + 1 < bytes && (n = read(fd, text + used, bytes - 1 - used)) > 0)
        used += (size_t)n;
    text[used] = 0;
    return used;
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

/* 50 steps, usually within a few milliseconds: the empty bar, the redraw after the message, the
 * last bar. */
TEST(a_terminal_gets_one_redrawn_line)
{
    int master, slave;
    struct winsize size = {.ws_row = 24, .ws_col = 90};
    static char text[1 << 16];
    if (openpty(&master, &slave, NULL, NULL, &size) != 0)
        SKIP("no pseudo-terminal here");
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    unsetenv("NO_COLOR");
    FILE *file = fdopen(slave, "w");
    double seconds = 0.0;
    ASSERT_INT(fsdp_terminal_columns(file), 90);
    run_bar(t, file, FSDP_PROGRESS_AUTO, &seconds);
    CHECK_HERE();
    fcntl(master, F_SETFL, O_NONBLOCK);
    read_all(master, text, sizeof text);
    ASSERT(strstr(text, "saved\r\n"));
    ASSERT(strstr(text, "\rr0 Training Epoch: 100%|\x1b[34m\u2588"));
    ASSERT(strstr(text, "| 50/50 ["));
    ASSERT(strstr(text, "loss=2.510]\x1b[0m\r\n"));
    ASSERT(is_drawn(count(text, "Training Epoch"), 3, seconds, 0.1));
    for (char *line = strtok(text, "\r\n"); line; line = strtok(NULL, "\r\n"))
        ASSERT(fsdp_text_columns(line) <= 90);
    fclose(file);
    close(master);
}

TEST(a_file_gets_plain_lines_without_carriage_returns)
{
    static char text[1 << 16];
    FILE *file = tmpfile();
    double seconds = 0.0;
    ASSERT(file);
    run_bar(t, file, FSDP_PROGRESS_AUTO, &seconds);
    CHECK_HERE();
    rewind(file);
    read_all(fileno(file), text, sizeof text);
    fclose(file);
    ASSERT(!strchr(text, '\r') && !strchr(text, 0x1B));
    ASSERT(strstr(text, "saved\n"));
    ASSERT(strstr(text, "\nr0 Training Epoch: 100% 50/50 [00:"));
    ASSERT(is_drawn(count(text, "\n"), 2, seconds, 3.0)); /* the message, and the end */
}

TEST(a_file_gets_a_line_every_so_many_steps_if_asked)
{
    static char text[1 << 16];
    fsdp_progress *bar;
    fsdp_progress_options options = {.file = tmpfile(), .total = 50, .line_steps = 10};
    ASSERT_OK(fsdp_progress_create(&options, &bar));
    for (int i = 0; i < 50; i++)
        fsdp_progress_update(bar, 1, "loss=%d", i);
    fsdp_progress_destroy(bar);
    rewind(options.file);
    read_all(fileno(options.file), text, sizeof text);
    fclose(options.file);
    ASSERT_INT(count(text, "\n"), 5);
    ASSERT(strstr(text, " 20% 10/50 [") == text && strstr(text, "\n100% 50/50 [00:"));
}

TEST(off_prints_nothing)
{
    FILE *file = tmpfile();
    double seconds = 0.0;
    ASSERT(file);
    run_bar(t, file, FSDP_PROGRESS_OFF, &seconds);
    CHECK_HERE();
    ASSERT_INT(ftell(file), 0);
    fclose(file);
    fsdp_progress_update(NULL, 1, NULL);
    fsdp_progress_destroy(NULL);
}
