/* What nvidia-modprobe would do: tells who it is, what it may, and whether it can make a node. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

int main(int count, char **words) {
    char line[256];
    const char *node = count > 1 ? words[1] : "/nowhere/node";
    FILE *status = fopen("/proc/self/status", "r");
    FILE *told = count > 2 ? fopen(words[2], "w") : stdout;
    if (!status || !told) return 1;
    fprintf(told, "euid=%d\nmknod=%d\n", (int)geteuid(), mknod(node, S_IFCHR | 0600, makedev(195, 0)));
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, "NoNewPrivs:", 11) || !strncmp(line, "CapEff:", 7) ||
            !strncmp(line, "CapBnd:", 7) || !strncmp(line, "CapPrm:", 7))
            fputs(line, told);
    return 0;
}
