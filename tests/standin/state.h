/* The state file of the stand-in libraries: lines `key=value`, read anew at every question, so
   that a test can change the machine while a program watches it. `#` begins a comment.
   GPUSETUP_STANDIN names the file. A value `!15` makes the call return NVML error 15; a key
   that is missing makes it return "not supported" (3). See README.md beside this file. */
#ifndef STATE_H
#define STATE_H
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { TEXT = 512 };

static int state_text(const char *key, char *value) {
    const char *path = getenv("GPUSETUP_STANDIN");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[TEXT];
    size_t length = strlen(key);
    int found = 0;
    if (!file) return 0;
    while (!found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) != 0 || line[length] != '=') continue;
        strcpy(value, line + length + 1);
        value[strcspn(value, "\r\n")] = 0;
        found = 1;
    }
    fclose(file);
    return found;
}

static long long state_number(const char *key, long long otherwise) {
    char value[TEXT];
    return state_text(key, value) ? strtoll(value, NULL, 0) : otherwise;
}

/* `<what>.slow_ms`, `<what>.hang`, `<what>.crash`: how an answer comes late or never. */
static void state_behave(const char *what) {
    char key[64];
    long long slow;
    snprintf(key, sizeof key, "%s.slow_ms", what);
    slow = state_number(key, 0);
    if (slow) usleep((useconds_t)slow * 1000);
    snprintf(key, sizeof key, "%s.hang", what);
    while (state_number(key, 0)) sleep(1);
    snprintf(key, sizeof key, "%s.crash", what);
    if (state_number(key, 0)) raise(SIGSEGV);
}
#endif
