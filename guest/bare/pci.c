// PCI configuration as firmware does it: finds a device, gives it addresses, and maps its MSI-X table. PCI Local Bus 3.0, 6.
#include "bare.h"

enum { ADDRESS = 0xcf8, DATA = 0xcfc, COMMAND = 0x04, BARS = 0x10, CAPABILITIES = 0x34, MSIX = 0x11 };
enum { MEMORY = 1 << 1, BUS_MASTER = 1 << 2, NO_PIN = 1 << 10 };

static uint32_t next_address = 0xc0000000; // of q35's window for memory of devices

static void pci_select(const struct pci *pci, unsigned offset)
{
    outl(ADDRESS, 0x80000000 | pci->device << 11 | (offset & 0xfc));
}

uint32_t pci_read(const struct pci *pci, unsigned offset)
{
    pci_select(pci, offset);
    return inl(DATA) >> (offset & 3) * 8;
}

static void pci_write(const struct pci *pci, unsigned offset, uint32_t value)
{
    pci_select(pci, offset);
    outl(DATA, value);
}

unsigned pci_capability(const struct pci *pci, unsigned id, unsigned after)
{
    unsigned at = pci_read(pci, after ? after + 1 : CAPABILITIES) & 0xff;
    while (at && (pci_read(pci, at) & 0xff) != id) {
        at = pci_read(pci, at + 1) & 0xff;
    }
    return at;
}

static void map_bars(struct pci *pci)
{
    for (unsigned n = 0; n < 6; n++) {
        unsigned offset = BARS + 4 * n;
        pci_write(pci, offset, ~0u);
        uint32_t mask = pci_read(pci, offset);
        if (mask == 0 || (mask & 1)) { // none, or of ports
            continue;
        }
        uint32_t size = -(mask & ~15u);
        next_address = (next_address + size - 1) & -size;
        pci->bars[n] = (uint8_t *)(uintptr_t)next_address;
        pci_write(pci, offset, next_address);
        next_address += size;
        if ((mask & 6) == 4) { // 64 bits wide
            pci_write(pci, offset + 4, 0);
            n++;
        }
    }
    pci_write(pci, COMMAND, MEMORY | BUS_MASTER | NO_PIN);
}

static void enable_msix(struct pci *pci)
{
    unsigned at = pci_capability(pci, MSIX, 0);
    if (!at) {
        return;
    }
    pci->vectors = (pci_read(pci, at + 2) & 0x7ff) + 1;
    uint32_t table = pci_read(pci, at + 4);
    volatile uint32_t *entry = (volatile uint32_t *)(pci->bars[table & 7] + (table & ~7u));
    for (unsigned n = 0; n < pci->vectors && n < DISK_VECTORS; n++, entry += 4) {
        entry[0] = APIC; // to the CPU with ID 0
        entry[1] = 0;
        entry[2] = FIRST_VECTOR + n;
        entry[3] = 0; // not masked
    }
    pci_write(pci, at, (pci_read(pci, at) & ~(1u << 30)) | 1u << 31);
}

bool pci_find(struct pci *pci, unsigned offset, unsigned shift, uint32_t value)
{
    for (unsigned device = 0; device < 32; device++) {
        *pci = (struct pci){.device = device};
        if (pci_read(pci, offset) >> shift == value) {
            map_bars(pci);
            enable_msix(pci);
            return true;
        }
    }
    return false;
}
