// Owns saving what the page made as a file.

export function save(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  // When the click returns, the download has begun. The URL must exist until then.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
