/** The page's only style sheet. It is in the page, and its hash in the Content-Security-Policy. */
export const style = `
:root{color-scheme:light dark;--ink:#14212b;--soft:#556371;--line:#e0e5ea;--paper:#fff;--back:#f2f5f4;--accent:#0b5d4f;
--good:#0a5f40;--good-back:#e2f3ea;--warn:#7a4b00;--warn-back:#fff1d2;--bad:#9b1c1c;--bad-back:#fde6e6;
--part0:#0b5d4f;--part1:#3f9d86;--part2:#d99a2b;--part3:#8a6fb0}
@media (prefers-color-scheme:dark){:root{--ink:#e7ecf2;--soft:#a3b2c0;--line:#2b3742;--paper:#151d24;--back:#0c1217;
--accent:#5cc8b2;--good:#7fdcae;--good-back:#12301f;--warn:#f3c76b;--warn-back:#33270c;--bad:#f7a3a3;--bad-back:#3a1616;
--part0:#5cc8b2;--part1:#2f8472;--part2:#e0aa4a;--part3:#a58ccb}}
*{box-sizing:border-box}
html{scroll-behavior:smooth;scroll-padding-top:.5rem;-webkit-text-size-adjust:100%}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
body{margin:0;background:var(--back);color:var(--ink);font:16px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
overflow-wrap:anywhere}
main,.top{max-width:56rem;margin:0 auto;padding:0 1rem}
main{padding-bottom:2rem}
a{color:var(--accent);text-underline-offset:.15em}
.top{display:flex;justify-content:space-between;gap:1rem;padding-top:.9rem;color:var(--soft);font-size:.875rem}
h1{font-size:1.55rem;line-height:1.2;margin:.35rem 0 .3rem}
h2{font-size:1.15rem;margin:0 0 .4rem}
h3{font-size:.95rem;margin:0 0 .2rem}
h3 small{color:var(--soft);font-weight:400;font-size:.85em}
h4{font-size:.85rem;margin:.1rem 0 .3rem;color:var(--accent)}
p{margin:.25rem 0 .5rem}
section{background:var(--paper);border:1px solid var(--line);border-radius:.8rem;padding:1rem;margin:.8rem 0}
.head{border-top:4px solid var(--accent)}
.head.is-warn{border-top-color:var(--warn)}
.head.is-bad{border-top-color:var(--bad)}
.badges{margin:0;display:flex;flex-wrap:wrap;gap:.4rem}
.badge{border-radius:1rem;padding:.1rem .7rem;font-size:.85rem;font-weight:600}
.plain{color:var(--soft);background:var(--back)}
.good{color:var(--good);background:var(--good-back)}
.warn{color:var(--warn);background:var(--warn-back)}
.bad{color:var(--bad);background:var(--bad-back)}
.notice{border-radius:.5rem;padding:.6rem .8rem;margin:.6rem 0}
.notice a{color:inherit;font-weight:600}
.about{display:flex;flex-wrap:wrap;gap:.15rem 1.4rem;margin:.5rem 0;font-size:.9rem}
.about dt{display:inline;color:var(--soft)}
.about dd{display:inline;margin:0 0 0 .3rem;font-weight:600}
.key{display:grid;grid-template-columns:1fr 1fr;gap:.5rem;margin:.9rem 0 0}
.key div{background:var(--back);border-radius:.5rem;padding:.5rem .7rem}
.key dt{color:var(--soft);font-size:.8rem;line-height:1.3}
.key dd{margin:.1rem 0 0;font-size:1.05rem;font-weight:650;line-height:1.25;overflow-wrap:break-word}
nav{display:flex;gap:.4rem;overflow-x:auto;margin:.8rem -1rem 0;padding:.1rem 1rem .3rem;scrollbar-width:none}
nav a{flex:none;background:var(--paper);border:1px solid var(--line);border-radius:1rem;padding:.3rem .8rem;font-size:.875rem;
text-decoration:none}
.hint{color:var(--soft);font-size:.85rem;margin:.3rem 0 0}
.field{border-top:1px solid var(--line)}
.field:first-child{border-top:0}
.row{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1.1fr) 1rem;gap:.6rem;padding:.5rem 0;align-items:baseline}
@media (max-width:43.99rem){.long{grid-template-columns:minmax(0,1fr) 1rem;row-gap:.1rem}
.long .value,.long .none{grid-row:2;grid-column:1/-1}}
.name{color:var(--soft);font-size:.9rem;line-height:1.35}
.value{font-weight:600}
.none{color:var(--soft);font-size:.9rem;line-height:1.35}
summary{cursor:pointer;list-style:none}
summary::-webkit-details-marker{display:none}
summary::after{content:"›";color:var(--accent);font-size:1.2rem;line-height:1;justify-self:end;transform:rotate(90deg)}
details[open]>summary::after{transform:rotate(-90deg)}
summary:focus-visible,a:focus-visible{outline:2px solid var(--accent);outline-offset:2px;border-radius:.2rem}
details:target,.field:target{background:var(--warn-back)}
.how{background:var(--back);border-radius:.5rem;padding:.6rem .7rem;margin:0 0 .6rem;font-size:.875rem}
.how ul{list-style:none;margin:.1rem 0;padding-left:.7rem;border-left:2px solid var(--line)}
.how li{margin:.25rem 0}
.how p{margin:.3rem 0 0}
code{font:.85em/1.4 ui-monospace,SFMono-Regular,Menlo,monospace;white-space:pre-wrap}
p code{display:inline-block;background:var(--back);border-radius:.25rem;padding:.1rem .35rem}
.from{color:var(--soft);display:block;font-size:.85em}
table{border-collapse:collapse;width:100%;font-size:.875rem;margin:.2rem 0 .5rem}
th,td{text-align:left;padding:.25rem .5rem .25rem 0;border-top:1px solid var(--line);vertical-align:top}
thead th{border-top:0;color:var(--soft);font-weight:400}
td.number,th.number{text-align:right;padding-right:0}
.bar{display:block;width:100%;height:1.1rem;border-radius:.3rem;margin:.3rem 0 .4rem}
rect.part0{fill:var(--part0)}rect.part1{fill:var(--part1)}rect.part2{fill:var(--part2)}rect.part3{fill:var(--part3)}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem 1.1rem;margin:0 0 .5rem;padding:0;font-size:.85rem;color:var(--soft)}
.legend b{color:var(--ink)}
.legend i{display:inline-block;width:.7rem;height:.7rem;border-radius:.15rem;margin-right:.35rem}
i.part0{background:var(--part0)}i.part1{background:var(--part1)}i.part2{background:var(--part2)}i.part3{background:var(--part3)}
.withheld>div{border:1px dashed var(--line);border-radius:.5rem;padding:.6rem .7rem;margin:.5rem 0}
.withheld p{font-size:.9rem;margin:.15rem 0}
.codes{display:grid;grid-template-columns:1fr 1fr;gap:1rem;margin:.6rem 0;max-width:36rem}
.codes figure{margin:0}
.codes svg{display:block;width:100%;height:auto;background:#fff;border-radius:.4rem;border:1px solid var(--line)}
.codes figcaption{font-size:.85rem;color:var(--soft);margin-top:.3rem;line-height:1.35}
.codes b{display:block;color:var(--ink)}
.address{font-size:.85rem;color:var(--soft)}
.technical summary::after{display:inline-block;margin-left:.4rem}
.technical summary{color:var(--accent);font-size:.9rem;padding:.2rem 0}
.hashes{font-size:.8rem;margin:.4rem 0 0}
.hashes div{margin:.2rem 0}
.hashes dt{display:inline;color:var(--soft)}
.hashes dd{display:inline;margin:0 0 0 .3rem;font-family:ui-monospace,Menlo,monospace}
.formats{display:flex;flex-wrap:wrap;gap:.4rem}
.formats a{border:1px solid var(--line);border-radius:.4rem;padding:.3rem .8rem;font-size:.9rem;text-decoration:none}
@media (min-width:44rem){
h1{font-size:2rem}
section{padding:1.2rem 1.4rem}
.key{grid-template-columns:repeat(3,1fr)}
.key dd{font-size:1.2rem}
.row{grid-template-columns:19rem minmax(0,1fr) 1rem}
nav{flex-wrap:wrap;overflow:visible;margin:.8rem 0 0;padding:0}
}
@media print{
:root{--ink:#000;--soft:#444;--line:#bbb;--paper:#fff;--back:#fff;--accent:#000;--good:#000;--good-back:#fff;--warn:#000;
--warn-back:#fff;--bad:#000;--bad-back:#fff;--part0:#000;--part1:#666;--part2:#aaa;--part3:#ddd}
@page{size:A4;margin:14mm}
body{font-size:9pt;line-height:1.3}
main,.top{max-width:none;padding:0}
.top{padding:0}
h1{font-size:17pt}
h2{font-size:11.5pt;margin:0 0 1mm}
section{border:0;border-top:.6pt solid #000;border-radius:0;padding:2mm 0 0;margin:3mm 0 0}
.head{border-top:0;padding:0;margin:0}
h2,h3{break-after:avoid}
.row,.long{grid-template-columns:6.5cm 1fr;gap:.5cm;padding:.6mm 0}
.long .value,.long .none{grid-row:auto;grid-column:auto}
.field{break-inside:avoid;border-top:.3pt solid #ccc}
.badge,.notice{border:.6pt solid #000}
.notice.bad{border-width:1.5pt;font-weight:700}
.legend i{-webkit-print-color-adjust:exact;print-color-adjust:exact;border:.3pt solid #000}
#withheld>p{break-after:avoid}
.key{grid-template-columns:repeat(3,1fr);gap:2mm;margin:2mm 0 0}
.key div{border:.3pt solid #bbb;padding:1mm 2mm}
.key dd{font-size:11pt}
.key dt,.name,.none,.about,.withheld p,.codes figcaption,.address,.legend,table{font-size:8.5pt}
.bar{height:3mm}
.how,.formats,.language,.hint,nav,summary::after,.technical{display:none}
.withheld>div{border:.3pt dashed #888;padding:1.5mm 2mm;margin:1.5mm 0;break-inside:avoid}
.codes{grid-template-columns:7cm 7cm;break-inside:avoid}
.codes svg{width:4.5cm;border:0;border-radius:0}
a{text-decoration:none}
}
`;
